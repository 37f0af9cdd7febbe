"""vLLM as the target's engine: a `TokenEngine` over vLLM's unchanged engine core with the classes in `plugins`."""
