"""Draft tokens ahead of the committed text: the draft tree, the n-gram index, how likely a draft token is accepted."""
