"""What shows the figures of a run: terminal, files of data, Markdown, a picture and a page."""
