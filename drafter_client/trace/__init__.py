"""Profiles of runs: recorded while the pair is at work, written as CSV and JSON, read again and drawn."""
