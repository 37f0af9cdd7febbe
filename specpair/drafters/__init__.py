"""Drafters: a draft model, n-gram lookup in the text, or a user's own, behind one contract (`base`)."""
