"""What a soaked verifier must say: each text computed here, and everything received held against it."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.scripted import ScriptedBackend
from speculation.sampling.sampling import Sampling, choose


class Fault(Exception):
    """The verifier said what it must not say."""


@dataclass
class Tally:
    """What happened in a soak."""

    requests: int = 0
    tokens: int = 0  # received and compared
    happened: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)  # by code, all of them to be expected
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds that an answer took


class Truth:
    """One session's text, found step by step as far as somebody asks."""

    def __init__(
        self, model: ScriptedBackend, context: int, prompt: Sequence[int], sampling: Sampling, most: int | None
    ) -> None:
        self.prompt_len = len(prompt)
        self.sampling = sampling
        self._limit = context if most is None else min(context, len(prompt) + most)
        self._model = model
        self._tokens = list(prompt)

    def ending(self, total: int) -> str | None:
        """The finish reason of the first `total` tokens."""
        if total > self.prompt_len and self.between(total - 1, total)[-1] in self._model.vocabulary.ends:
            return "stop"
        return "length" if total >= self._limit else None

    @property
    def limit(self) -> int:
        """A position that the text does not go beyond."""
        return self._limit

    def between(self, start: int, end: int) -> list[int]:
        """Tokens from position `start` to `end`, fewer where the text ends before."""
        while len(self._tokens) < min(end, self._limit) and not self._ended():
            logits = self._model.logits_after(self._tokens)
            self._tokens.append(choose(logits, self.sampling, len(self._tokens)))
        return self._tokens[start:end]

    def _ended(self) -> bool:
        return len(self._tokens) > self.prompt_len and self._tokens[-1] in self._model.vocabulary.ends

    def compare(self, position: int, tokens: Sequence[int], total: int, reason: str | None, whose: str) -> None:
        """Raise Fault unless `tokens` are those from `position` to `total`, and `reason` is why the text ends there."""
        expected = self.between(position, position + len(tokens))
        if list(tokens) != expected:
            raise Fault(f"{whose}: from {position} on came {list(tokens)}, it is {expected}")
        if total != position + len(tokens):
            raise Fault(f"{whose}: {len(tokens)} tokens from {position} on, and {total} in all")
        if reason != self.ending(total):
            raise Fault(f"{whose}: ended by {reason} at {total}, it is {self.ending(total)}")


@dataclass(slots=True)
class Memory:
    """When the verifier last heard of a session, and so how long it must know it."""

    ttl: float
    heard: float | None = None  # when a request was sent that it has answered since
    doomed: bool = False  # it was told to forget it

    def touched(self, sent: float) -> None:
        """A request of this moment was answered."""
        self.heard = sent if self.heard is None else max(self.heard, sent)

    def lasts(self, heard: float | None) -> bool:
        """Whether a session last `heard` of at that time must still be there."""
        return heard is not None and not self.doomed and time.monotonic() - heard < self.ttl
