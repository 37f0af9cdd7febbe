"""What the records of a run say: measures of each side, comparisons, equality of texts, scores."""
