"""The small draft model expands several continuations in one shared cache, with equal proposals and less memory."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.registry import load
from models import DEFAULT_DRAFT
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.errors import OutOfRoom
from specpair.engines.load_options import LoadOptions
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.sampling import Sampling
from tests.end_to_end.prompts import PROMPTS

pytestmark = pytest.mark.slow

SLOTS, CONTEXT, BEYOND = 3, 480, 31  # with one cell more, 512 cells: llama.cpp rounds up to multiples of 256
TOLERANCE = 0.25  # how much a logit may differ with the cells in the cache, as in the conformance tests of this engine


def _loaded(context: int = CONTEXT, shared_cells: int | None = None, slots: int = SLOTS) -> Backend:
    options = LoadOptions(
        model=DEFAULT_DRAFT, slots=slots, context_length=context, threads=1, shared_cells=shared_cells
    )
    return load("llama_cpp", options)


@pytest.fixture
def shared() -> Iterator[Backend]:
    with closing(_loaded(shared_cells=BEYOND)) as backend:
        yield backend


@pytest.fixture(scope="module")
def alone() -> Iterator[Backend]:
    """A model with one slot, in which each text is read from the start."""
    with closing(_loaded(context=1024, slots=1)) as backend:
        yield backend


def test_shared_cells_reduce_the_memory(shared: Backend) -> None:
    with closing(_loaded()) as separate:
        assert shared.kv_bytes == pytest.approx(separate.kv_bytes * (CONTEXT + BEYOND) / (SLOTS * CONTEXT), rel=0.01)


class _Refusals:
    """Counts how often an engine raises OutOfRoom."""

    def __init__(self, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        extend = backend.extend

        def counted(batch: list[Entry]) -> list[Logits]:
            try:
                return extend(batch)
            except OutOfRoom:
                self.count += 1
                raise

        monkeypatch.setattr(backend, "extend", counted)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(seed=5, temperature=0.8)], ids=["greedy", "warm"])
def test_predictions_behind_a_branch_equal_those_behind_its_text(
    shared: Backend, alone: Backend, sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text follows a branch or not, until it has outgrown the context. OutOfRoom is never raised."""
    drafter, refusals = ModelDrafter(shared, sampling), _Refusals(shared, monkeypatch)
    text = shared.vocabulary.encode("".join(PROMPTS * 2))[: CONTEXT - 50]
    compared = longest = 0
    for turn in range(12):
        branches: list[list[int]] = [[]]
        for _ in range(7):
            found = drafter.expand(text, branches, True).proposals
            longest = max(longest, len(text) + len(branches[0]))
            for tail, proposal in zip(branches, found, strict=True):
                if longest <= CONTEXT:  # later, the window has slid, and the drafter holds only a part of the text
                    full = [*text, *tail]
                    alone.release(0)
                    logits = alone.extend([Entry(0, 0, full, len(full) - 1)])[0][0]
                    scores = _scores(logits, sampling, len(full))
                    assert scores.max() - scores[proposal.token] < TOLERANCE
                    compared += 1
            first, *others = [[*tail, each.token] for tail, each in zip(branches, found, strict=True)]
            if len(branches) < SLOTS and found[0].runner_up is not None:
                others.append([*branches[0], found[0].runner_up])
            branches = [first, *others]
        text = [*text, *(branches[turn % len(branches)] if turn % 4 else [7])]
    assert compared > 100 and refusals.count == 0 and longest > CONTEXT


def _scores(logits: Logits, sampling: Sampling, position: int) -> NDArray[np.float64]:
    """Scores, of which the target chooses the largest."""
    if sampling.greedy:
        return logits.astype(np.float64)
    noise = gumbel.gumbel(gumbel.row_key(sampling.seed, position), np.arange(len(logits)))
    return logits.astype(np.float64) / sampling.temperature + noise
