"""HTTP in several processes, in front of the one with the engine."""
