"""The router: one address in front of several verifiers and drafters, which it watches and between which it chooses."""
