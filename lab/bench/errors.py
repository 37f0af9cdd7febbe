"""Errors of `drafter bench`, which the drafter's command line reports as its own."""

from drafter_client.errors import DrafterError


class BadBench(DrafterError):
    """A benchmark cannot be run as requested."""


class BadCase(BadBench):
    """A case of `drafter bench` does not exist, or its file is not valid; the message names the file and the key."""


class BadSide(BadBench):
    """An endpoint for `drafter bench` is described wrongly, does not answer, or lacks a needed feature."""


class BadRecords(BadBench):
    """The results of `drafter bench` cannot be read or written; the message names the file and the line."""
