"""The YAML file of a simulation: its keys as models, which check values; errors name the line."""
