"""What a soaked verifier must send: each text computed here, with which everything received is compared."""

import hashlib
import struct
from array import array
from collections.abc import Sequence

import numpy as np

from backends.base import Logits
from backends.scripted import BEGIN, END, ScriptedBackend
from speculation.sampling.sampling import Sampling, choose

CONTEXT = 512  # of the verifier


class Fault(Exception):
    """The verifier sent what it must not send."""


class WholeContext(ScriptedBackend):
    """A toy model whose logits depend on all tokens before: one wrong token anywhere in a slot is another text."""

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        digest = hashlib.blake2b(array("H", tokens).tobytes(), digest_size=16).digest()
        source = np.random.default_rng([self.script.seed, *struct.unpack("<4I", digest)])
        logits = np.full(self.vocabulary.size, -np.inf, dtype=np.float32)
        logits[: END + 1] = source.standard_normal(END + 1) * self.script.sharpness
        logits[BEGIN] = -np.inf
        logits[END] += self.script.end_bias
        return logits


class Truth:
    """One session's text, computed as far as it is asked for."""

    def __init__(self, model: ScriptedBackend, prompt: Sequence[int], sampling: Sampling, most: int) -> None:
        self.prompt_len = len(prompt)
        self._limit = min(CONTEXT, len(prompt) + most)
        self._model, self._sampling = model, sampling
        self._tokens = list(prompt)

    def between(self, start: int, end: int) -> list[int]:
        """Tokens from position `start` to `end`, fewer where the text ends before."""
        while len(self._tokens) < end and self.ending(len(self._tokens)) is None:
            logits = self._model.logits_after(self._tokens)
            self._tokens.append(choose(logits, self._sampling, len(self._tokens)))
        return self._tokens[start:end]

    def ending(self, total: int) -> str | None:
        """The finish reason of the first `total` tokens."""
        if total > self.prompt_len and self.between(total - 1, total)[-1] in self._model.vocabulary.ends:
            return "stop"
        return "length" if total >= self._limit else None

    def compare(self, position: int, tokens: Sequence[int], total: int, reason: str | None, session: str) -> None:
        """Raise Fault unless `tokens` are those from `position` to `total`, and `reason` is why the text ends there."""
        expected = self.between(position, position + len(tokens))
        if list(tokens) != expected:
            raise Fault(f"{session}: from {position} on came {list(tokens)}, it is {expected}")
        if total != position + len(tokens):
            raise Fault(f"{session}: {len(tokens)} tokens from {position} on, and {total} in all")
        if reason != self.ending(total):
            raise Fault(f"{session}: finish reason {reason} at {total}, it is {self.ending(total)}")
