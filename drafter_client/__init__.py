"""The drafter: a small model on this machine guesses ahead, a verifier elsewhere says which guesses stand."""
