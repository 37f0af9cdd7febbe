"""Fleets in virtual time: verifiers, drafters and a router on one clock, and the times of each request."""
