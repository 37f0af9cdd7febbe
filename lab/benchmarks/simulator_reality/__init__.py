"""Validates the simulator: compares a real fleet with its simulation, from the same configuration."""
