"""Anthropic's Messages: its requests as chats, and its objects and events of their answers."""
