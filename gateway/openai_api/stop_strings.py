"""Ends a text before the first stop string, however its characters are spread over the tokens."""

from collections.abc import Sequence
from typing import NamedTuple


class Fed(NamedTuple):
    """The characters that can be sent now, and whether a stop string has ended the text behind them."""

    text: str
    stopped: bool


class StopStrings:
    """Takes a text in parts and gives it back up to the first stop string.

    Characters that may be the beginning of a stop string are held back until the next part shows whether they are. The
    result does not depend on how the text is divided: the stop string that is complete first ends the text, and of
    several that are complete with the same character, the one that began first.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops`: strings of at least one character; none: the text passes as it is."""
        self._stops = tuple(stops)
        self.held = ""  # characters that may be the beginning of a stop string
        self.found: str | None = None  # the stop string that has ended the text

    def feed(self, text: str) -> Fed:
        """Take the next part of the text. Not to be called after the text was stopped."""
        if not self._stops:
            return Fed(text, False)
        seen = self.held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := seen.find(stop)) >= 0]
        if found:
            _, at, self.found = min(found)
            self.held = ""
            return Fed(seen[:at], True)
        keep = beginning(seen, self._stops)
        self.held = seen[len(seen) - keep :]
        return Fed(seen[: len(seen) - keep], False)

    def end(self) -> str:
        """The characters that were held back, at the end of the text."""
        held, self.held = self.held, ""
        return held


def beginning(text: str, strings: Sequence[str]) -> int:
    """How many of the last characters of a text may be the beginning of one of these strings."""
    most = min(max(map(len, strings), default=1) - 1, len(text))
    sizes = (size for size in range(most, 0, -1) if any(each.startswith(text[-size:]) for each in strings))
    return next(sizes, 0)
