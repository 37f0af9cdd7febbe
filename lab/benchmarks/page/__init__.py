"""What the page of `drafter serve` costs: its weight, its first paint, its frames, and what a text loses beside it."""
