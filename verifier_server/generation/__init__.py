"""What the service does for requests: prompts, verifies, whole texts with and without server-side drafting."""
