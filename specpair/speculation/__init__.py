"""The pure decisions of speculative decoding: no I/O, no model, no clock."""
