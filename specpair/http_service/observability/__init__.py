"""Observability of both HTTP services: metrics, logs, health."""
