"""Traces of runs: recorded while the pair generates, written as CSV and JSON, read again and plotted."""
