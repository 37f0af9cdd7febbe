"""How much of a prompt the target has read: told while a long one is read, in comments of server-sent events."""

import re
from typing import NamedTuple

_COMMENT = re.compile(rb": prompt (\d{1,9})/(\d{1,9})")


class PromptProgress(NamedTuple):
    """`read` tokens of the `of` that a prompt has."""

    read: int
    of: int

    def comment(self) -> bytes:
        """A comment of server-sent events, which readers that do not know it pass over."""
        return b": prompt %d/%d\n\n" % self

    @classmethod
    def from_comment(cls, line: bytes) -> "PromptProgress | None":
        """What a line of server-sent events says; None: it is no such comment."""
        found = _COMMENT.fullmatch(line)
        return None if found is None else cls(int(found[1]), int(found[2]))
