"""A whole run: its folder, its stretches, its progress, its table."""
