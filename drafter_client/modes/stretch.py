"""A stretch of a text in mode `auto`, measured for the selection of modes. It has no clock and no connection."""

from drafter_client.generation.events import Committed
from drafter_client.modes.selection import ModeSelection
from drafter_client.options import Mode
from specpair.speculation.acceptance.token_source import TokenSource
from specpair.speculation.policy.modes.estimate import WARM_UP


class Stretch:
    """The part of a text that is generated in one mode without a change. Points in time are seconds."""

    def __init__(self, mode: Mode, now: float, outages: int = 0) -> None:
        """`outages`: how many the text has had so far."""
        self.mode = mode
        self._asked, self._outages = now, outages
        self._written, self._warm = 0, False

    def add(self, selection: ModeSelection, committed: Committed, now: float, outages: int = 0) -> None:
        """Measure tokens that came `now`."""
        timed = self._warm and outages == self._outages  # an outage does not count against the mode
        seconds = now - self._asked if timed else 0.0
        selection.add_measurement(self.mode, len(committed.tokens), seconds, *_compared(committed))
        self._written += len(committed.tokens)
        self._warm, self._outages = self._written >= WARM_UP, outages

    def next(self, selection: ModeSelection, left: int, unread: int) -> Mode:
        """The mode of the next tokens: another one begins a new stretch. `left`, `unread`: as for `ModeSelection`."""
        return selection.next(left, self.mode, self._written, unread)

    def ask(self, now: float) -> None:
        """The reader of the text wants the next tokens; the time before does not count."""
        self._asked = now


def _compared(committed: Committed) -> tuple[int, int]:
    """How many draft tokens were accepted, and how many compared with the target's choice."""
    if committed.schedule is not None:  # the drafter on this machine predicts every token, sent or not
        return len(committed.tokens) - committed.mispredicted, len(committed.tokens)
    sources = [source for _, source in committed.tokens]
    accepted = sources.count(TokenSource.ACCEPTED)
    return accepted, accepted + sources.count(TokenSource.RECOVERED)
