"""How a verifier and a device write a text, or a stretch of it, in each mode."""
