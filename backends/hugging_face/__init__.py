"""Readers of model folders in Hugging Face layout, shared by several engines."""
