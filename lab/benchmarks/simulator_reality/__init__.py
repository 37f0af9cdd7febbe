"""Whether the simulator tells the truth: a real fleet beside its simulation, from the same configuration."""
