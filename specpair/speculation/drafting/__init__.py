"""Draft tokens ahead of the committed text: the draft tree, what is looked up, how likely a draft token is accepted."""
