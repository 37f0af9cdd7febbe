"""The torch engine: Hugging Face models on PyTorch, on one device or several."""
