"""Tokens per second over every round-trip time."""
