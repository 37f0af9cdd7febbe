"""What a machine can do for a pair: what it is, which engines run on it and how fast, what a verifier gains from it."""
