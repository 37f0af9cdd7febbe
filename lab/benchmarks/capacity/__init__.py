"""How many clients one verifier carries."""
