"""Choose which mode writes a text: what each is expected to take, and what each has taken."""
