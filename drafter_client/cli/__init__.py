"""What `drafter` does, a module a command."""
