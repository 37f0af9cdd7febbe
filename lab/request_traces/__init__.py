"""Recorded loads: when requests came and how long they were, from files of several forms. Nothing of their texts."""
