"""Shared by the HTTP services of both ends: API keys, metrics, logs."""
