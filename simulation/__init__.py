"""Drafters and a verifier in virtual time, engines of a given speed, models of another vocabulary: for tests and
measurements."""
