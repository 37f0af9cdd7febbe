"""The user's own files as a source of drafts: they are tokenized and indexed in the background, and never sent."""
