"""Classes that vLLM loads by name into its own processes: a scheduler, a proposer, and an extension of workers."""
