"""The error of all tools for model files."""


class ExportError(Exception):
    """A model could not be read, transformed or written.

    The message is one plain sentence for the user: what was wrong, where, and what to do.
    """
