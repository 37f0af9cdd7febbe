"""Compares configurations that differ in some keys, and finds the load that a fleet carries."""
