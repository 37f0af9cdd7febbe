"""One text on the drafter's side: all that a verifier needs to continue it, and what its responses must keep to."""

import secrets
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from drafter_client.errors import ModelChanged
from drafter_client.http.outages import Stop
from drafter_client.http.responses import broken_promise
from specpair.drafters.run.events import Committed
from specpair.protocol.prefix import PromptPrefix
from specpair.speculation.acceptance.token_sources import HasDetails, TokenDetails
from specpair.speculation.text_options import TextSpec


@dataclass(frozen=True, slots=True)
class ResponseBounds:
    """Bounds of the responses of one text: token ids below `ids`, at most `tokens` tokens, the prompt included, the
    verifier's `identity` (empty: not known), and the token details that its `spec` requests."""

    url: str
    ids: int
    tokens: int
    ends: frozenset[int] = frozenset()  # ids of end tokens
    identity: str = ""
    spec: TextSpec = field(default_factory=TextSpec)

    def check_identity(self, identity: str) -> None:
        """Raise ModelChanged if a response that begins or resumes the text bears another identity."""
        if self.identity and identity != self.identity:
            raise ModelChanged(f"the verifier at {self.url} serves another model than before")

    def finish_reason(self, text: list[int]) -> str | None:
        """Return why `text`, its prompt included, is complete ("stop" or "length"); None if it is not."""
        if text[-1] in self.ends:
            return "stop"
        return "length" if len(text) >= self.tokens else None

    def details(self, path: str, tokens: list[int], response: HasDetails) -> TokenDetails:
        """The details of `tokens` in a response. Raises BadReply if requested details are missing, or are of other
        tokens."""
        sources = response.sources
        if len(sources) != len(tokens) or any(mark.source is None for mark in sources):
            raise broken_promise(self.url + path, "sources is not one letter for each token, of this session")
        details, asked = TokenDetails.of(response), TokenDetails.asked_by(self.spec).named()
        for name, given in details.named().items():
            if given is None and asked[name] is not None:
                raise broken_promise(self.url + path, f"{name} are missing, but were requested")
            if given is not None and [each.token for each in given if each is not None] != tokens:
                raise broken_promise(self.url + path, f"{name} are of other tokens")
        return details

    def check(self, path: str, position: int, tokens: list[int]) -> None:
        """Raise BadReply if `tokens`, from `position` on, exceed the bounds."""
        if tokens and max(tokens) >= self.ids:
            raise broken_promise(self.url + path, f"a token is {max(tokens)}, but the vocabulary has {self.ids} ids")
        end = position + len(tokens)
        if end > self.tokens:
            raise broken_promise(self.url + path, f"the text has {end} tokens, at most {self.tokens} were requested")


def new_session_id() -> str:
    """A session id that nobody guesses; a router spreads sessions by it."""
    return secrets.token_urlsafe(12)


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
        return self.known[len(self.prompt_ids) :]

    def news(self) -> Iterator[Committed]:
        """Yield the tokens that the reader has not got yet. Those that the caller does not take stay unread."""
        while self.unread:
            yield self.unread.popleft()

    def check_complete(self, bounds: ResponseBounds) -> None:
        """Set `finish_reason` if the committed tokens end the text, although no response has said so."""
        if self.finish_reason is None and len(self.known) > len(self.prompt_ids):
            self.finish_reason = bounds.finish_reason(self.known)

    def request(self, prefix: PromptPrefix | None) -> dict[str, Any]:
        """The fields of `/prefill` and `/generate` that have the prompt and the committed tokens.

        `prefix`: how the prompt begins, for a verifier that holds these ids.
        """
        fields: dict[str, Any] = {"prompt_ids": self.prompt_ids}
        if prefix is not None:
            fields = {"prompt_ids": self.prompt_ids[prefix.length :], "prefix": prefix}
        return fields | ({"committed_ids": self.tokens} if self.tokens else {})
