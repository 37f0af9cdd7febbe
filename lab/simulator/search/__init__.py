"""Answers what to buy: compares configurations that differ in some keys, and finds how much a fleet carries."""
