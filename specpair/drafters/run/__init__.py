"""Runs one text: drafter, verifier and clock are interfaces. Both the drafter and the verifier use this package."""
