"""Decides what to draft, how much, when to send drafts, and which mode to use."""
