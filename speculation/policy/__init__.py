"""What to draft, how much and when to send it, and which mode to use."""
