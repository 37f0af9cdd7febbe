"""llama-server, to compare with: compiled, run, and every setting of its own speculation."""
