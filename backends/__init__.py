"""Inference engines behind one contract: `base` defines the contract, `registry` loads an engine by name."""
