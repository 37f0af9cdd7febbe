"""The commands of `drafter bench`."""
