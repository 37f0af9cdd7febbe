"""Chats for the requests of other APIs: what they share, whose objects and events they are told in."""
