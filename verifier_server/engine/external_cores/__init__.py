"""Engine over a core that runs its own steps, shared by vLLM and SGLang."""
