"""llama-server's own speculation against ours."""
