"""The recipe that made the default pair."""
