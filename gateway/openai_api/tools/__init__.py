"""Calls of tools, read from a model's text as it grows. Pure: no I/O, no engine."""
