"""Measures tokens per second at many round-trip times."""
