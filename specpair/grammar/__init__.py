"""Grammars for constrained output: compiled for a vocabulary, and followed token by token, on both ends.

llguidance parses the grammar and computes the masks. `specpair.speculation.sampling.grammar` has the options.
"""
