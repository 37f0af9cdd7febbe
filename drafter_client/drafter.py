"""The draft model at work: guesses what comes next, and keeps its KV cache in step with the committed text."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from backends.contract import Backend, Entry
from speculation.acceptance import common_prefix
from speculation.sampling import Logits, Sampling, choose


class Draft(NamedTuple):
    """One guessed token and the drafter's own probability of it."""

    token: int
    confidence: float


class Drafter(Protocol):
    """Whatever can guess: a model, a table, a test's junk."""

    def draft(self, tokens: Sequence[int], another: Callable[[Sequence[float]], bool]) -> list[Draft]:
        """Guess tokens after `tokens`, one by one while `another(confidences so far)`."""


class ModelDrafter:
    """Drafts with a model in one row of a backend, under the verifier's own noise.

    The row holds a prefix of `tokens[base:]`; what it holds is never computed again, except when the text
    outgrows the model's context: then the window slides on to the last half of it.
    """

    def __init__(self, backend: Backend, sampling: Sampling, vocabulary_size: int | None = None, row: int = 0) -> None:
        """`vocabulary_size`: the verifier's; ids beyond the smaller vocabulary are never drafted."""
        self._backend, self._sampling, self._row = backend, sampling, row
        self._ids = min(backend.vocabulary.size, vocabulary_size or backend.vocabulary.size)
        self._fewer_ids = (vocabulary_size or 0) > self._ids
        self._held: list[int] = []
        self._base = 0

    def draft(self, tokens: Sequence[int], another: Callable[[Sequence[float]], bool]) -> list[Draft]:
        drafts: list[Draft] = []
        confidences: list[float] = []
        feed = list(tokens)
        if self._fewer_ids:  # in place of one that only the target knows, any will do
            feed = [token if token < self._ids else 0 for token in feed]
        while another(confidences):
            logits = self._after(feed)[: self._ids]
            token = choose(logits, self._sampling, len(feed))
            confidence = _probability(logits, token, self._sampling)
            drafts.append(Draft(token, confidence))
            confidences.append(confidence)
            if token in self._backend.vocabulary.ends:
                break
            feed.append(token)
        return drafts

    def _after(self, tokens: list[int]) -> Logits:
        """Logits that follow `tokens`, feeding only what the row does not hold."""
        context = self._backend.context_length
        if not self._base < len(tokens) <= self._base + context:  # outgrown; or cut back to before the window
            self._base = max(0, len(tokens) - context // 2)
            self._held = []
        window = tokens[self._base :]
        held = len(self._held)
        if window[:held] != self._held:  # the rare case: comparing token by token takes longer
            held = common_prefix(self._held, window)
        start = min(held, len(window) - 1)
        self._held = []  # should the engine fail, nothing is certain
        step = self._backend.max_batch_tokens
        for at in range(start, len(window), step):
            chunk = window[at : at + step]
            rows = self._backend.extend([Entry(self._row, at, chunk, len(chunk) - 1)])
        self._held = window
        last: Logits = rows[0][0]
        return last


def _probability(logits: Logits, token: int, sampling: Sampling) -> float:
    """The drafter's probability of `token` at the session's temperature (at 1 when greedy), filters aside."""
    scale = np.float32(1.0 if sampling.greedy else 1.0 / sampling.temperature)
    return float(1.0 / np.exp((logits - logits[token]) * scale).sum())
