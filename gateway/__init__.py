"""Interfaces for other programs: the APIs of OpenAI and Anthropic, tools, chat templates; and the router."""
