"""Decide what to draft, how much, when to send it, and which mode to use."""
