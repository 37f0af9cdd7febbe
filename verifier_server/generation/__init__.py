"""Request handling of the service: prompts, verifies, and texts with or without server-side drafting."""
