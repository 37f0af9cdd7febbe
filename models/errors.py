"""Errors of model files, and of finding a model's file by name. Each message says what to do."""


class HubError(Exception):
    """Base of all errors of `models.hub`."""


class BadName(HubError, ValueError):
    """A text is not the name of a model."""


class NoMatch(HubError):
    """A repository has no model of the tag that was asked for."""

    def __init__(self, message: str, tags: tuple[str, ...]) -> None:
        """`tags`: those that the repository has."""
        super().__init__(message)
        self.tags = tags


class AccessDenied(HubError):
    """The hub wants a token, or wants its terms to be accepted."""


class ModelNotFound(HubError):
    """The hub has no such repository or file."""


class HubRateLimited(HubError):
    """The hub limits the rate of requests from this machine."""

    def __init__(self, message: str, seconds: int | None) -> None:
        """`seconds`: how long to wait, if the hub said so."""
        super().__init__(message)
        self.seconds = seconds


class HubUnreachable(HubError):
    """The hub does not answer, or the connection was cut: later it may work."""


class Offline(HubUnreachable):
    """Offline mode is on, so the hub was not asked."""


class BadCatalogue(HubError):
    """A file is no catalogue of draft models."""


class DiskFull(HubError):
    """A model does not fit on the disk."""

    def __init__(self, message: str, needed: int, free: int) -> None:
        """`needed`, `free`: bytes."""
        super().__init__(message)
        self.needed, self.free = needed, free


class MemoryShort(HubError):
    """A model on the hub does not fit into this machine's memory."""


class Damaged(HubError):
    """A fetched file differs from the hub's listing."""


class BadHead(HubError):
    """The head of a model file is invalid."""


class ExportError(Exception):
    """A model could not be read, transformed or written.

    The message is one plain sentence for the user: what was wrong, where, and what to do.
    """
