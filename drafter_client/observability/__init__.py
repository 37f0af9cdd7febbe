"""The drafter's own metrics."""
