"""Model folders in Hugging Face layout, as several engines read them."""
