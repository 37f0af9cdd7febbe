"""The engine contract, which `backends` implements, and the code that both sides of the contract use."""
