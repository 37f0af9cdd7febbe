"""Drafting ahead of the committed text: the draft tree, lookups, and the model of acceptance."""
