"""What an engine is: the contract that `backends` implements, and what stands on both sides of it."""
