"""What model files in Hugging Face layout say of tokens and templates, read without any model library."""
