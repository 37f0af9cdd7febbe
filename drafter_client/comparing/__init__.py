"""`drafter compare`: which way of writing is the fastest with this verifier, over this link, on these machines."""
