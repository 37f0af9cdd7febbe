"""Engines behind one port: ours over a backend (thread, scheduler, KV slots), and those over vLLM and SGLang."""
