"""Server-sent events and comments as bytes."""

from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.terminal_text import one_line

COMMENT = b":\n\n"


def event_bytes(data: bytes, name: str = "") -> bytes:
    """The bytes of an event. `data`: one line; `name`: empty for none."""
    return (b"event: %s\n" % name.encode() if name else b"") + b"data: %s\n\n" % data


def comment(progress: PromptProgress | None, away: str = "") -> bytes:
    """A comment for a reader that hears nothing else.

    `progress`: of the prompt that is being read, if one is.
    `away`: what is waited for beyond the service, if something is.
    """
    if away:
        return b": %s\n\n" % one_line(away).encode()
    return COMMENT if progress is None else progress.comment()
