"""The number of prompt tokens that the target has read, sent for long prompts in comments of server-sent events."""

import re
from typing import NamedTuple

_COMMENT = re.compile(rb": prompt (\d{1,9})/(\d{1,9})")


class PromptProgress(NamedTuple):
    """The target has read `read` of the `of` tokens of a prompt."""

    read: int
    of: int

    def comment(self) -> bytes:
        """A comment of server-sent events, which other readers ignore."""
        return b": prompt %d/%d\n\n" % self

    @classmethod
    def from_comment(cls, line: bytes) -> "PromptProgress | None":
        """The progress in a line of server-sent events; None: the line is no such comment."""
        found = _COMMENT.fullmatch(line)
        return None if found is None else cls(int(found[1]), int(found[2]))
