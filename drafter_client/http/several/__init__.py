"""Several verifiers of one model: which one a text goes to, and where it goes on."""
