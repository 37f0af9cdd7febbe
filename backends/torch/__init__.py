"""The torch engine: Hugging Face models on PyTorch, on one or several devices."""
