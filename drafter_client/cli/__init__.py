"""The commands of `drafter`, one module each."""
