"""The commands of the program `verifier` beside serving: they take the same settings."""
