"""Endpoints that turn texts and conversations into tokens, and tokens into texts, without generating any."""
