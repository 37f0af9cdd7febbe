"""The most of a fleet's load, or the least of its verifiers, that keeps a promise: found by bisection."""
