"""From a row of logits to a token: filters and the shared Gumbel noise."""
