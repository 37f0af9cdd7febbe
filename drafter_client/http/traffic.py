"""The bytes of a connection: counted both ways, and bounded, as an endless response would take all memory."""

import math
import time
from collections.abc import Callable

from drafter_client.errors import BadReply

MiB = 2**20
MOST = {"/vocabulary": 64 * MiB}  # bytes of a response by path; 150,000 tokens take 3 MiB
MOST_ELSEWHERE = 16 * MiB  # bytes of another response, or from one event of a stream to the next, comments included
MOST_OF_AN_ERROR = MiB  # bytes of a response with another status than 200
# Bytes that each part of a body takes of the limit beside its own, as many tiny parts need much more memory than their
# bytes, and bytes in addition for those of a long body.
EACH_PART, ALL_PARTS = 16, MiB
SLOW_LINK = 600.0  # seconds that a response may take to arrive, in addition to the timeout for its beginning
# Seconds of comments without an event, by path. A long prompt may queue and be read for long. The stream of a session
# has no bound: it has no events for as long as the client sends no drafts.
EVENT_PATIENCE = {"/generate": 900.0}


class Traffic:
    """Counts the bytes `sent` and `received` in heads and bodies so far, without the framing of chunks, and bounds one
    response after the other: the bytes of its body and its duration. The transport bounds its head."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: returns seconds."""
        self.sent = self.received = 0
        self._clock = clock
        self.where = self._late = ""  # `where`: the address of the response
        self._most = self._allowed = 0  # bytes: allowed in all, and still allowed of them
        self._deadline = 0.0

    def begin(self, url: str, path: str, timeout: float) -> None:
        """Bound the duration of a response from `path` at `url`. The transport bounds the wait for each part of the
        response to `timeout` seconds."""
        seconds = timeout + SLOW_LINK
        self.where = url + path
        self._most_of_path = MOST.get(path.partition("?")[0], MOST_ELSEWHERE)
        self._patience = EVENT_PATIENCE.get(path.partition("?")[0], math.inf)
        self._late = f"took more than {seconds:g} s for one response"
        self._deadline = self._clock() + seconds

    def head(self, status: int, length: int | None) -> None:
        """Bound the body that follows a head.

        `length`: bytes that the head announces; None: it announces none.

        Raises BadReply if that is too long.
        """
        most = self._most_of_path if status == 200 else MOST_OF_AN_ERROR
        if length is not None and length > most:
            raise self.refused(f"announces {length} bytes, at most {most} are read")
        self._most = self._allowed = most + ALL_PARTS

    def next_event(self) -> None:
        """Bound the next event of a stream."""
        self._late = f"sent comments and no event for {self._patience:g} s"
        self._most = self._allowed = self._most_of_path
        self._deadline = self._clock() + self._patience

    def part(self, received: int) -> None:
        """Count a part of a body, `received` bytes. Raises BadReply if the body is too long."""
        self.received += received
        self._allowed -= received + EACH_PART
        if self._allowed < 0:
            raise self.refused(f"sent more than {self._most} bytes without an end")

    def check_duration(self) -> None:
        """Raise BadReply if the response is too late."""
        if self._clock() > self._deadline:
            raise self.refused(self._late)

    def refused(self, reason: str) -> BadReply:
        """The error for a response that no verifier sends."""
        return BadReply(f"{self.where} {reason}: is it a verifier?")
