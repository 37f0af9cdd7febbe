"""Hints: parameters of a request that have no effect, where that cannot make the answer wrong. The reply names them in
a header, and the log once per process. With `--strict` they are refused."""

import logging
import re
from collections.abc import Callable
from contextvars import ContextVar
from itertools import takewhile

from specpair.protocol.errors import InvalidRequest

HEADER = b"x-specpair-ignored"
_MOST = 32  # names of one request, and in one header
_MOST_LOGGED = 1000  # names per process: clients choose some of them
_NAME = re.compile(r"[A-Za-z_][\w$-]{0,63}", re.ASCII)  # a part of a path that may stand in a header
_log = logging.getLogger("specpair.hints")
_logged: set[str] = set()


class Hints:
    """The hints of one request, in order. `strict`: they are refused."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self._sent: dict[str, str] = {}
        self._names: dict[str, None] = {}

    def header(self) -> list[tuple[bytes, bytes]]:
        """The header of the reply, if there are hints. Logs those that this process has not logged yet."""
        sent = (_shown(self._sent.get(name, name)) for name in self._names)
        names = [*dict.fromkeys(filter(None, sent))][:_MOST]
        if new := [name for name in names if name not in _logged][: _MOST_LOGGED - len(_logged)]:
            _logged.update(new)
            _log.info("taken without effect: %s", ", ".join(new))
        return [(HEADER, ", ".join(names).encode())] if names else []

    def add(self, name: str) -> None:
        self._names[name] = None

    def read_as(self, sent: str, name: str) -> None:
        """Report a hint `name` by the name that was sent."""
        self._sent[name] = sent

    def rename(self, new: Callable[[str], str]) -> None:
        self._names = dict.fromkeys(map(new, self._names))


def _shown(name: str) -> str:
    """A path without positions in lists, up to a part that cannot stand in a header."""
    parts = takewhile(_NAME.fullmatch, (part for part in name.split(".") if not part.isdigit()))
    return ".".join(parts)


_current: ContextVar[Hints | None] = ContextVar("hints", default=None)


def enter(hints: Hints) -> None:
    """Collect the hints of the present task, and of tasks that it starts from now on, in `hints`."""
    _current.set(hints)


def refused() -> bool:
    """Whether the present request is read strictly."""
    return (hints := _current.get()) is not None and hints.strict


def take_hint(name: str, why: str = "it has no effect here: leave it out", *, strictly: bool = True) -> None:
    """Take a parameter of the present request without effect: THE function to call for a hint.

    The reply has it in the header `x-specpair-ignored`, also a stream's, and the log names it once. Call it before the
    reply begins. Where no request is current, nothing happens.

    `name`: the dotted path in the request, or in the chat that the request is read as; positions in lists are dropped.
    `why`: the reason and what to do, for the error.
    `strictly`: whether `--strict` refuses it, with InvalidRequest.
    """
    if (hints := _current.get()) is None:
        return
    if hints.strict and strictly:
        raise InvalidRequest(f"{name}: {why}", param=name)
    hints.add(name)


def read_as(sent: str, name: str) -> None:
    """Note that the parameter `sent` of the present request is read as `name`, for hints."""
    if (hints := _current.get()) is not None:
        hints.read_as(sent, name)


def rename_hints(new: Callable[[str], str]) -> None:
    """Rename the hints of the present request. `new`: the name in the request, of a name in its chat."""
    if (hints := _current.get()) is not None:
        hints.rename(new)
