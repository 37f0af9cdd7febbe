"""What an engine is tried with: tiny models of random weights, logits of a Llama in NumPy, and checks of engines."""
