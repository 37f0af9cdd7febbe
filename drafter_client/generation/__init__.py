"""Generates one text: by drafts, or by the verifier alone; resumes it after outages; yields its events."""
