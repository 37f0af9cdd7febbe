"""Chooses a token from a row of logits: filters, shared Gumbel noise, top logits."""
