"""`drafter serve`: OpenAI's endpoints in front of a pair."""
