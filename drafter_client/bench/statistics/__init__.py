"""What the records of a run say: measures of each side, comparisons between sides, and equality of their texts."""
