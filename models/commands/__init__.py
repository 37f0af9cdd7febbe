"""The command `models` of both ends: what is in the cache, what a file says of its model, which models make a pair."""
