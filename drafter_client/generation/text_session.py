"""The state of one text on the drafter's side: all that a verifier needs to continue the text."""

import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from drafter_client.generation.events import Committed
from drafter_client.http.responses import ResponseBounds
from drafter_client.http.stop import Stop


def new_session_id() -> str:
    """A session id that nobody guesses; a router spreads sessions by it."""
    return secrets.token_hex(16)


@dataclass(slots=True)
class TextSession:
    """One text, which several connections, modes and processes of the verifier may generate one after the other.

    `known`: token ids of the prompt and of all committed tokens. It is the one list of them on this side: whoever
    generates the text appends to it, under the lock of the reactor if there is one, and all others read it.
    """

    prompt_ids: list[int]
    session_id: str = field(default_factory=new_session_id)
    stop: Stop = field(default_factory=Stop)  # set when no more of the text is wanted
    opened: bool = False  # whether a verifier may hold the session
    known: list[int] = field(init=False)
    unread: deque[Committed] = field(default_factory=deque)  # committed, but not passed on to the reader yet
    finish_reason: str | None = None  # why the text has ended; None: it has not
    stopped_at: int | None = None  # of its tokens, how many there are to the end of a stop string; None: there is none
    read: int = 0  # tokens of the text, prompt included, that the drafter may have read; a drafter's text only grows
    outages: int = 0  # how many the text was resumed after

    def __post_init__(self) -> None:
        self.known = list(self.prompt_ids)

    @property
    def tokens(self) -> list[int]:
        """Token ids of the generated text."""
        return self.known[len(self.prompt_ids) :]

    def news(self) -> Iterator[Committed]:
        """Yield the tokens that the reader has not got yet. Those that the caller does not take stay unread."""
        while self.unread:
            yield self.unread.popleft()

    def check_complete(self, bounds: ResponseBounds) -> None:
        """Set `finish_reason` if the committed tokens end the text, although no response has said so."""
        if self.finish_reason is None and len(self.known) > len(self.prompt_ids):
            self.finish_reason = bounds.finish_reason(self.known)

    def request(self) -> dict[str, Any]:
        """The fields of `/prefill` and `/generate` that identify the text and its committed tokens."""
        fields: dict[str, Sequence[int] | str] = {"session_id": self.session_id, "prompt_ids": self.prompt_ids}
        return fields | ({"committed_ids": self.tokens} if self.tokens else {})
