"""What texts have in common: prefixes whose KV cache is computed once."""
