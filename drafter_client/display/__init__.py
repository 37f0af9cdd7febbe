"""Output for people: the text, the status line, progress bars, the panel, tables and plots."""
