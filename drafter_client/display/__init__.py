"""What a person sees of a run: the text, the status line, the panel, tables and plots."""
