"""What an engine is tried with: tiny models of random weights, the logits of a Llama in NumPy, and checks of engines."""
