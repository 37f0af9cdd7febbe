"""What speaks the language of other programs: the APIs of OpenAI and Anthropic, tools, chat templates; the router."""
