"""What OpenAI's endpoints cost, and what they do under load."""
