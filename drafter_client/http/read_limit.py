"""Bounds on the size and the duration of a response: an endless one would take all memory."""

import math
import time
from collections.abc import Callable

from drafter_client.errors import BadReply

MiB = 2**20
MOST = {"/vocabulary": 64 * MiB}  # bytes of a response by path; 150,000 tokens take 3 MiB
MOST_ELSEWHERE = 16 * MiB  # of a response, or from one event of a stream to the next, comments included
MOST_OF_AN_ERROR = MiB
MOST_OF_A_HEAD = MiB  # beside the body and its framing
SLOW_LINK = 600.0  # seconds that a response may take to arrive, beside the timeout for its beginning
# Seconds of comments without an event. A prompt may queue and be long. The stream of a session has no bound: it has no
# events for as long as the client sends no drafts.
EVENT_PATIENCE = {"/generate": 900.0}


class ReadLimit:
    """The socket calls `count` with every read, so that all of a response counts: head, body, framing, comments."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` in seconds."""
        self._clock = clock
        self._where = self._late = ""
        self._most = self._received = 0
        self._deadline = 0.0

    def begin(self, where: str, path: str, timeout: float) -> None:
        """The response from `path`, whose full address is `where`, comes next. The socket's own timeout bounds the wait
        for each of its parts to `timeout` seconds."""
        seconds = timeout + SLOW_LINK
        self._where, self._late = where, f"took more than {seconds:g} s for one response"
        self._most, self._received = most_of(path) + MOST_OF_A_HEAD, 0
        self._deadline = self._clock() + seconds

    def next_event(self, path: str) -> None:
        """The next event of a stream comes next."""
        seconds = EVENT_PATIENCE.get(path.partition("?")[0], math.inf)
        self._late = f"sent comments and no event for {seconds:g} s"
        self._most, self._received = most_of(path), 0
        self._deadline = self._clock() + seconds

    def head(self, path: str, status: int, length: int | None) -> None:
        """The body comes next. Raises BadReply where the head announces one that is too long."""
        most = most_of(path) if status == 200 else MOST_OF_AN_ERROR
        if length is not None and length > most:
            raise BadReply(f"{self._where} announces {length} bytes, at most {most} are read: is it a verifier?")
        self._most, self._received = most + MOST_OF_A_HEAD, 0  # framing of its chunks included

    def count(self, received: int) -> None:
        """`received` bytes came. Raises BadReply when the response is too long or too late."""
        self._received += received
        if self._received > self._most:
            raise BadReply(f"{self._where} sent more than {self._most} bytes without an end: is it a verifier?")
        if self._clock() > self._deadline:
            raise BadReply(f"{self._where} {self._late}: is it a verifier?")


def most_of(path: str) -> int:
    """The most bytes that a response from `path`, or one event of a stream, may have."""
    return MOST.get(path.partition("?")[0], MOST_ELSEWHERE)
