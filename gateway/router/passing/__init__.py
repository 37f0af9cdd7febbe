"""Passes requests on to nodes, and their replies back as they come."""
