"""What a text is as an answer: thoughts, content and calls of tools, read from its characters as they grow."""
