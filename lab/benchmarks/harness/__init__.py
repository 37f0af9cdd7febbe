"""Shared code of all experiments: processes, a link, models, texts, reports."""
