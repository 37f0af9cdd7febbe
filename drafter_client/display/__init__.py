"""Output for people: the text, the status line, progress bars, and the panel."""
