"""Fleets in virtual time: verifiers, drafters and a router on one clock, failures, autoscaling, and the times of each
request."""
