"""OpenAI's endpoints, for any source of texts. Both ends serve them."""
