"""Texts that keep to a grammar: whether they are valid, what the mask takes, how fast they come."""
