"""Chat prompts: the target's chat template, rendered within bounds of time and memory."""
