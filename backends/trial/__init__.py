"""Checks of engines, with tiny models of random weights and the logits of a Llama in NumPy."""
