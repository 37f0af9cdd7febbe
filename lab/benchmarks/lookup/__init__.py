"""What drafts that are looked up in the text bring."""
