"""How much whoever answers may send, and for how long: without this, an answer without end takes all memory."""

import math
import time
from collections.abc import Callable

from drafter_client.errors import BadReply

MiB = 2**20
MOST = {"/vocabulary": 64 * MiB}  # bytes of an answer by path; of some 150,000 tokens it is 3 MiB
MOST_ELSEWHERE = 16 * MiB  # of an answer, or from one event of a stream to the next, comments included
MOST_OF_AN_ERROR = MiB
MOST_OF_A_HEAD = MiB  # beside the body, and what frames it
SLOW_LINK = 600.0  # seconds that an answer may take on its way, beyond those that it may be waited for
# Seconds of comments without an event. A prompt may queue and be long. A session's stream says nothing for as long as
# nobody sends drafts, which is the client's affair.
EVENT_PATIENCE = {"/generate": 900.0}


class ReadLimit:
    """Looked at by the socket with every read, so that all of an answer counts: head, body, framing, comments."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` in seconds."""
        self._clock = clock
        self._where = self._late = ""
        self._most = self._received = 0
        self._deadline = 0.0

    def begin(self, where: str, path: str, timeout: float) -> None:
        """What comes now is the answer from `path`, whose full address is `where`. Each of its parts may be waited for
        `timeout` seconds, by the socket's own timeout."""
        seconds = timeout + SLOW_LINK
        self._where, self._late = where, f"took more than {seconds:g} s for one answer"
        self._most, self._received = most_of(path) + MOST_OF_A_HEAD, 0
        self._deadline = self._clock() + seconds

    def next_event(self, path: str) -> None:
        """What comes now is the next event of a stream."""
        seconds = EVENT_PATIENCE.get(path.partition("?")[0], math.inf)
        self._late = f"sent comments and no event for {seconds:g} s"
        self._most, self._received = most_of(path), 0
        self._deadline = self._clock() + seconds

    def head(self, path: str, status: int, length: int | None) -> None:
        """What comes now is the body. Raises BadReply for one that is too long, as its head says."""
        most = most_of(path) if status == 200 else MOST_OF_AN_ERROR
        if length is not None and length > most:
            raise BadReply(f"{self._where} announces {length} bytes, at most {most} are read: is it a verifier?")
        self._most, self._received = most + MOST_OF_A_HEAD, 0  # what frames its pieces included

    def count(self, received: int) -> None:
        """So many bytes came. Raises BadReply when they are too many, or come too late."""
        self._received += received
        if self._received > self._most:
            raise BadReply(f"{self._where} sent more than {self._most} bytes without an end: is it a verifier?")
        if self._clock() > self._deadline:
            raise BadReply(f"{self._where} {self._late}: is it a verifier?")


def most_of(path: str) -> int:
    """Bytes that an answer from `path`, or an event, may have."""
    return MOST.get(path.partition("?")[0], MOST_ELSEWHERE)
