"""Token ids of the prompts that requests hold: texts, gaps, conversations."""
