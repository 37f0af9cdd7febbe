"""What an engine is tried with: a tiny Llama of random weights, its logits in NumPy, and random batches."""
