"""Load on an endpoint: who is asked when, and the requests of one stretch."""
