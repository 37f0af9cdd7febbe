"""What a choice between nodes looks at."""

from collections.abc import Sequence
from typing import Protocol


class Candidate(Protocol):
    """A node that takes texts, and how busy it is. Times are in seconds."""

    @property
    def name(self) -> str:
        """Tells it from the others."""

    @property
    def weight(self) -> float:
        """How many texts it can take in relation to others; above 0."""

    @property
    def queue(self) -> int:
        """Texts under way there, and requests that wait for a pass."""

    @property
    def queue_time(self) -> float:
        """Until a draft of one more text would be judged there: see `queue_time`."""


def queue_time(link: float, pass_times: Sequence[float], slots: int, texts: int, waiting: int) -> float:
    """Seconds until a draft of one more text is judged: the round trip, the passes for which others wait, and its own
    pass, over a token of each text. Texts beyond the slots take turns.

    `link`: the round trip.
    `pass_times`: of passes over 1, 2, … tokens; empty: they are not known, and count as nothing.
    `slots`: texts that can share a pass, at least 1.
    `texts`: under way, without the one more.
    `waiting`: requests that wait for a pass.
    """
    if not pass_times:
        return link
    width = texts + 1
    together = min(len(pass_times), slots)
    took = pass_times[min(width, together) - 1] * max(1.0, width / together)
    return link + took * (1.0 + waiting / width)
