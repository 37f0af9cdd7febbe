"""A text and its session: all that a verifier needs to continue the text."""

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from drafter_client.generation.observer import Committed


class Stop:
    """A flag that ends the waiting for a verifier; any thread may set it. It counts as set if `above` is set."""

    def __init__(self, above: "Stop | None" = None) -> None:
        self._event, self._above = threading.Event(), above
        self._lock = threading.Lock()
        self._breaks: list[Callable[[], None]] = []

    def set(self) -> None:
        with self._lock:
            self._event.set()
            breaks = list(self._breaks)
        for each in breaks:
            each()

    def is_set(self) -> bool:
        return self._event.is_set() or (self._above is not None and self._above.is_set())

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as this flag or the one above is set."""
        with nullcontext() if self._above is None else self._above.breaking(self._event.set):
            self._event.wait(seconds)

    @contextmanager
    def breaking(self, abort: Callable[[], None]) -> Iterator[None]:
        """Within the block, setting the flag calls `abort` in the thread that sets it; at once if it is already set."""
        with nullcontext() if self._above is None else self._above.breaking(abort):
            with self._lock:
                self._breaks.append(abort)
                already_set = self._event.is_set()
            if already_set:
                abort()
            try:
                yield
            finally:
                with self._lock:
                    self._breaks.remove(abort)


@dataclass(slots=True)
class TextSession:
    """One text; several connections, modes and runs of the verifier may take part in its generation.

    `tokens`: the generated tokens that are committed and were passed on to the reader, see `passed_on`.
    """

    prompt_ids: list[int]
    session_id: str = field(default_factory=lambda: secrets.token_hex(16))
    tokens: list[int] = field(default_factory=list)
    stop: Stop = field(default_factory=Stop)  # set when no more of the text is wanted
    opened: bool = False  # whether a verifier may hold the session
    read: int = 0  # tokens of the text, prompt included, that the drafter may have read: later calls may only append
    held_back: deque[Committed] = field(default_factory=deque)  # committed, but not passed on before a mode ended
    since: float | None = None  # seconds on the run's clock, when the last token came or the text was begun

    @property
    def known(self) -> list[int]:
        """Prompt and generated tokens."""
        return self.prompt_ids + self.tokens

    def passed_on(self, committed: Committed) -> None:
        """Record that these tokens go to the reader."""
        self.tokens += [token for token, _ in committed.tokens]

    def request(self) -> dict[str, Any]:
        """The fields of `/prefill` and `/generate` that identify the text and its committed tokens."""
        fields: dict[str, Sequence[int] | str] = {"session_id": self.session_id, "prompt_ids": self.prompt_ids}
        return fields | ({"committed_ids": self.tokens} if self.tokens else {})
