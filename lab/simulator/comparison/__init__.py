"""Runs side by side: how far their measures differ, and whether that is more than chance."""
