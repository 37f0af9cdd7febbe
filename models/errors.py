"""What can go wrong with a model file, as one type."""


class ExportError(Exception):
    """A model could not be read, transformed or written.

    The message is one plain sentence for the person at the terminal: what was wrong, where, and what to do about it.
    """
