"""Tries an engine on this machine and writes a report: what the first user of new hardware sends back."""
