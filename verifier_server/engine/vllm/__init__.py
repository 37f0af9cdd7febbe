"""vLLM as a verifier: a `TokenEngine` over vLLM's engine core, which is stock but for the classes in `plugins`."""
