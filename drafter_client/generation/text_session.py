"""The state of one text on the drafter's side: all that a verifier needs to continue the text."""

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from drafter_client.generation.observer import Committed
from drafter_client.http.stop import Stop


@dataclass(slots=True)
class TextSession:
    """One text, which several connections, modes and processes of the verifier may generate one after the other.

    `tokens`: the generated tokens that are committed and were passed on to the reader (see `passed_on`).
    """

    prompt_ids: list[int]
    session_id: str = field(default_factory=lambda: secrets.token_hex(16))
    tokens: list[int] = field(default_factory=list)
    stop: Stop = field(default_factory=Stop)  # set when no more of the text is wanted
    opened: bool = False  # whether a verifier may hold the session
    read: int = 0  # tokens of the text, prompt included, that the drafter may have read; a drafter's text only grows
    held_back: deque[Committed] = field(default_factory=deque)  # committed, but not passed on before a mode ended
    since: float | None = None  # seconds on the run's clock when the last token came, or the text began; None: before

    @property
    def known(self) -> list[int]:
        """Token ids of the prompt and of the generated text."""
        return self.prompt_ids + self.tokens

    def passed_on(self, committed: Committed) -> None:
        """Record that these tokens were passed on to the reader."""
        self.tokens += [token for token, _ in committed.tokens]

    def request(self) -> dict[str, Any]:
        """The fields of `/prefill` and `/generate` that identify the text and its committed tokens."""
        fields: dict[str, Sequence[int] | str] = {"session_id": self.session_id, "prompt_ids": self.prompt_ids}
        return fields | ({"committed_ids": self.tokens} if self.tokens else {})
