"""Recorded runs as one HTML file: `drafter report --html`."""
