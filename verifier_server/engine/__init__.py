"""The engine thread, its scheduler and the KV slots. It knows no HTTP."""
