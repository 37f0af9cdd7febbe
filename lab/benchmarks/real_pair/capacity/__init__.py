"""How many drafters one verifier carries with recorded texts."""
