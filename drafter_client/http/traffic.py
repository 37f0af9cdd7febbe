"""The bytes of a connection: counted both ways, and bounded, as an endless response would take all memory."""

import math
import time
from collections.abc import Callable

from drafter_client.errors import BadReply

MiB = 2**20
MOST = {"/vocabulary": 64 * MiB}  # bytes of a response by path; 150,000 tokens take 3 MiB
MOST_ELSEWHERE = 16 * MiB  # bytes of another response, or from one event of a stream to the next, comments included
MOST_OF_AN_ERROR = MiB  # bytes of a response with another status than 200
MOST_OF_A_HEAD = MiB  # bytes of a head; the framing of a body may take as many again
SLOW_LINK = 600.0  # seconds that a response may take to arrive, in addition to the timeout for its beginning
# Seconds of comments without an event, by path. A long prompt may queue and be read for long. The stream of a session
# has no bound: it has no events for as long as the client sends no drafts.
EVENT_PATIENCE = {"/generate": 900.0}


class Traffic:
    """Counts the bytes `sent` and `received` over a connection so far, and bounds the bytes and the duration of one
    response after the other. `count` is called with every read, so that all of a response counts: head, body, framing,
    comments."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: returns seconds."""
        self.sent = self.received = 0
        self._clock = clock
        self._where = self._late = ""
        self._most = self._allowed = 0  # bytes: allowed now, and still allowed of them
        self._deadline = 0.0

    def begin(self, where: str, path: str, timeout: float) -> None:
        """Set the bounds for a response from `path`, whose full address is `where`. The socket's own timeout bounds the
        wait for each part of the response to `timeout` seconds."""
        seconds = timeout + SLOW_LINK
        self._where, self._late = where, f"took more than {seconds:g} s for one response"
        self._most = self._allowed = _most_of(path) + MOST_OF_A_HEAD
        self._deadline = self._clock() + seconds

    def next_event(self, path: str) -> None:
        """Set the bounds for the next event of the stream from `path`."""
        seconds = EVENT_PATIENCE.get(path.partition("?")[0], math.inf)
        self._late = f"sent comments and no event for {seconds:g} s"
        self._most = self._allowed = _most_of(path)
        self._deadline = self._clock() + seconds

    def head(self, path: str, status: int, length: int | None) -> None:
        """Set the bounds for the body, after the head. `length`: bytes that the head announces; None: it announces
        none. Raises BadReply if that is too long."""
        most = _most_of(path) if status == 200 else MOST_OF_AN_ERROR
        if length is not None and length > most:
            raise BadReply(f"{self._where} announces {length} bytes, at most {most} are read: is it a verifier?")
        self._most = self._allowed = most + MOST_OF_A_HEAD  # the framing of its chunks counts, too

    def count(self, received: int) -> None:
        """Count `received` more bytes. Raises BadReply if the response is too long or too late."""
        self.received += received
        self._allowed -= received
        if self._allowed < 0:
            raise BadReply(f"{self._where} sent more than {self._most} bytes without an end: is it a verifier?")
        if self._clock() > self._deadline:
            raise BadReply(f"{self._where} {self._late}: is it a verifier?")


def _most_of(path: str) -> int:
    """The greatest number of bytes that a response from `path`, or one event of its stream, may have."""
    return MOST.get(path.partition("?")[0], MOST_ELSEWHERE)
