"""Traces of runs: recorded while the pair generates, and written as CSV and JSON."""
