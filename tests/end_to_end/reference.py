"""Plain decoding by the target itself, token by token, as the measure of what the pair writes.

An engine's logits may differ in the last bits between batch widths, so that a near-tie can go the other way. Such a
flip is allowed only where the reference's score of the token lies less than `EPSILON` below its best; behind it the
reference goes on from the text as it is. Every flip is counted and printed at the end of the test run.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend, Entry, LoadOptions
from backends.registry import load
from drafters.draft_model import BRANCH_CELLS
from speculation.acceptance.strategies import common_prefix
from speculation.sampling import gumbel
from speculation.sampling.sampling import Sampling, choose

# Nats. Measured with the shipped pair, 24 prompts of 128 tokens: no flip at all on an AVX512 CPU with flash attention
# (the default) for 1 and 2 threads; without it four texts flip, at 0.0017, 0.003, 0.007 and 0.025. Twice the largest.
EPSILON = 0.05
MAX_TOKENS = 128
CONTEXT = 512


@contextmanager
def model(path: Path, *, branches: int = 1, deterministic: bool = False) -> Iterator[Backend]:
    """A model of the shipped pair on llama.cpp, on one thread; as a drafter it follows so many branches."""
    options = LoadOptions(
        model=path,
        rows=branches,
        shared_cells=BRANCH_CELLS * (branches - 1),
        context_length=CONTEXT,
        threads=1,
        deterministic=deterministic,
    )
    with closing(load("llama_cpp", options)) as backend:
        yield backend


class Reference:
    """The target decoding by itself. What it says after a prompt is computed once."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._said: dict[tuple[tuple[int, ...], Sampling], list[int]] = {}

    def encode(self, text: str) -> list[int]:
        return self.backend.vocabulary.encode(text)

    def continues(self, prompt: Sequence[int], count: int, sampling: Sampling = Sampling()) -> list[int]:
        """Up to `count` tokens; fewer when the text ends."""
        key = (tuple(prompt), sampling)
        said = self._said.setdefault(key, [])
        if len(said) < count and not (said and said[-1] in self.backend.vocabulary.ends):
            said[:] = self._decode(list(prompt), count, sampling)
        return said[:count]

    def flips(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling = Sampling()) -> list[float]:
        """Where `tokens` differ from what the target says by itself: by how much its best score lies above theirs."""
        margins: list[float] = []
        at = 0
        while at < len(tokens):
            before = [*prompt, *tokens[:at]]
            said = self.continues(before, len(tokens) - at, sampling)
            at += common_prefix(said, tokens[at:])
            if at < len(tokens):
                margins.append(self._margin([*prompt, *tokens[:at]], tokens[at], sampling))
                at += 1
        return margins

    def _decode(self, tokens: list[int], count: int, sampling: Sampling) -> list[int]:
        prompt_len, held = len(tokens), 0
        while len(tokens) < prompt_len + count:
            logits = self.backend.extend([Entry(0, held, tokens[held:], len(tokens) - held - 1)])[0][0]
            held = len(tokens)
            tokens.append(choose(logits, sampling, held))
            if tokens[-1] in self.backend.vocabulary.ends:
                break
        return tokens[prompt_len:]

    def _margin(self, before: list[int], token: int, sampling: Sampling) -> float:
        logits = self.backend.extend([Entry(0, 0, before, len(before) - 1)])[0][0]
        scores = _scores(logits.astype(np.float64), sampling, len(before))
        return float(scores.max() - scores[token])


def ends_where_it_should(reference: Reference, tokens: Sequence[int], limit: int) -> bool:
    """At its limit, or before it at an end token."""
    return len(tokens) == limit or (len(tokens) < limit and tokens[-1] in reference.backend.vocabulary.ends)


def _scores(logits: NDArray[np.float64], sampling: Sampling, position: int) -> NDArray[np.float64]:
    """What the target chooses the largest of; without filters."""
    if sampling.greedy:
        return logits
    ids = np.arange(len(logits))
    return logits / sampling.temperature + gumbel.gumbel(gumbel.row_key(sampling.seed, position), ids)
