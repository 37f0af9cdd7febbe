"""Chat prompts: the target's chat template, rendered within limits of time and memory."""
