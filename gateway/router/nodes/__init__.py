"""The nodes behind the router: what is known of each, which ones can take a text, and which one has a session."""
