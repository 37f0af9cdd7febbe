"""Runs a configuration: the fleet that it describes, in virtual time."""
