"""Selects the mode of a text, by the estimated and the measured rate of each mode."""
