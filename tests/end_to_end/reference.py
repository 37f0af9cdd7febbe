"""Plain decoding of the target, token by token, as the reference for texts of the pair.

An engine's logits may differ in the last bits between batch widths, so that a near-tie can be decided differently. Such
a flip is allowed only where the reference's score of the token is less than `EPSILON` below its best score. Behind a
flip, the reference continues from the text with the flip. All flips are counted and printed at the end of the test run.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backends.registry import load
from specpair.drafters.draft_model import BRANCH_CELLS
from specpair.engines.backend import Backend, Entry
from specpair.engines.load_options import LoadOptions
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.sampling import Sampling, choose

# In nats: twice the largest flip measured with the shipped pair (24 prompts of 128 tokens). On an AVX512 CPU there was
# no flip with flash attention (the default) for 1 and 2 threads; without it, four texts had flips of 0.0017, 0.003,
# 0.007 and 0.025.
EPSILON = 0.05
# The same for texts of mode auto, which copies keys and values when it changes its mode: in ten texts the largest flip
# was 0.071, on a CPU with AMX.
EPSILON_OF_AUTO = 0.15
_NARROW = 63  # tokens: llama.cpp on CPUs computes passes of 64 and more in another way
MAX_TOKENS = 128
CONTEXT = 512


@contextmanager
def model(path: Path, *, branches: int = 1, deterministic: bool = False) -> Iterator[Backend]:
    """A model of the shipped pair on llama.cpp, on one thread. `branches`: continuations that a drafter may expand."""
    options = LoadOptions(
        model=path,
        slots=branches,
        shared_cells=BRANCH_CELLS * (branches - 1),
        context_length=CONTEXT,
        threads=1,
        deterministic=deterministic,
    )
    with closing(load("llama_cpp", options)) as backend:
        yield backend


class Reference:
    """Plain decoding of the target. The text after a prompt is computed once."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._texts: dict[tuple[tuple[int, ...], Sampling], list[int]] = {}

    def encode(self, text: str) -> list[int]:
        return self.backend.vocabulary.encode(text)

    def continues(self, prompt: Sequence[int], count: int, sampling: Sampling = Sampling()) -> list[int]:
        """The `count` tokens after `prompt`; fewer if the text ends before."""
        key = (tuple(prompt), sampling)
        text = self._texts.setdefault(key, [])
        if len(text) < count and not (text and text[-1] in self.backend.vocabulary.ends):
            text[:] = self._decode(list(prompt), count, sampling)
        return text[:count]

    def flips(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling = Sampling()) -> list[float]:
        """For each token that differs from plain decoding: how much the best score exceeds the token's score."""
        margins: list[float] = []
        at = 0
        while at < len(tokens):
            before = [*prompt, *tokens[:at]]
            expected = self.continues(before, len(tokens) - at, sampling)
            at += common_prefix(expected, tokens[at:])
            if at < len(tokens):
                margins.append(self._margin([*prompt, *tokens[:at]], tokens[at], sampling))
                at += 1
        return margins

    def _decode(self, tokens: list[int], count: int, sampling: Sampling) -> list[int]:
        prompt_len, held = len(tokens), 0
        while len(tokens) < prompt_len + count:
            logits = self._logits(tokens, held)
            held = len(tokens)
            tokens.append(choose(logits, sampling, held))
            if tokens[-1] in self.backend.vocabulary.ends:
                break
        return tokens[prompt_len:]

    def _logits(self, tokens: list[int], held: int) -> NDArray[np.float32]:
        """The logits behind `tokens`, of which the slot holds the first `held`.

        Read in narrow passes, as the verifier reads generated tokens: wider ones give other last bits.
        """
        for begin in range(held, len(tokens), _NARROW):
            piece = tokens[begin : begin + _NARROW]
            rows = self.backend.extend([Entry(0, begin, piece, len(piece) - 1)])[0]
        return rows[0]

    def _margin(self, before: list[int], token: int, sampling: Sampling) -> float:
        logits = self._logits(before, 0)
        scores = _scores(logits.astype(np.float64), sampling, len(before))
        return float(scores.max() - scores[token])


def ends_where_it_should(reference: Reference, tokens: Sequence[int], limit: int) -> bool:
    """Whether `tokens` end at the limit, or before it with an end token."""
    return len(tokens) == limit or (len(tokens) < limit and tokens[-1] in reference.backend.vocabulary.ends)


def _scores(logits: NDArray[np.float64], sampling: Sampling, position: int) -> NDArray[np.float64]:
    """Scores, of which the target chooses the largest; without top-k and top-p."""
    if sampling.greedy:
        return logits
    ids = np.arange(len(logits))
    return logits / sampling.temperature + gumbel.gumbel(gumbel.row_key(sampling.seed, position), ids)
