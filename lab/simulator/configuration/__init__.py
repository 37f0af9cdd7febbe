"""The YAML file of a simulation: its keys as models, which check values; mistakes are named with their line."""
