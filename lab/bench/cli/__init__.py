"""The command `drafter bench`: its flags, and what it does."""
