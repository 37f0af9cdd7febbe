"""Studies of texts that are known beforehand: how many clients a verifier carries, what a neighbour costs, which fixed
policy had been best."""
