"""Drafters and a verifier in virtual time, and engines that take a given time: for tests and measurements."""
