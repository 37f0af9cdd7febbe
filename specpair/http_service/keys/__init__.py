"""API keys of both HTTP services: stored as hashes, with limits and counted usage for each."""
