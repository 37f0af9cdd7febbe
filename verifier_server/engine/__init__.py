"""Engines with one interface: ours over a backend (thread, scheduler, KV slots), and those over vLLM and SGLang."""
