"""The small draft model expands several continuations in one shared cache, with equal proposals and less memory."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.registry import load
from drafter_client import draft_sources
from drafter_client.draft_sources import DraftModel
from drafter_client.http.client import VerifierClient
from models import DEFAULT_DRAFT
from specpair.drafters.draft_model import BRANCH_CELLS, ModelDrafter
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.errors import OutOfRoom
from specpair.engines.load_options import LoadOptions
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
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


def test_all_slots_may_extend_a_full_context_while_cells_are_free(shared: Backend) -> None:
    text = list(range(3, CONTEXT - 9))
    shared.extend([Entry(0, 0, text, len(text))])
    for slot in (1, 2):
        shared.copy(0, slot, len(text))
    tail = list(range(10))
    shared.extend([Entry(slot, len(text), tail, len(tail)) for slot in range(SLOTS)])
    assert [shared.length(slot) for slot in range(SLOTS)] == [CONTEXT - 2] * SLOTS
    shared.release(1)
    shared.extend([Entry(1, 0, tail, len(tail))])  # uses the cells that slot 1 held beyond the shared text
    with pytest.raises(OutOfRoom):
        shared.extend([Entry(1, 10, tail * 3, 30)])
    assert (shared.length(1), shared.length(2)) == (0, CONTEXT - 2)


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


def test_default_cells_suffice_for_the_controller_s_deepest_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many branches of the deepest draft as there are slots."""
    with closing(_loaded(shared_cells=BRANCH_CELLS * (SLOTS - 1))) as backend:
        drafter, refusals = ModelDrafter(backend, Sampling()), _Refusals(backend, monkeypatch)
        deepest = DraftLength(None, 1000).room(10_000)
        text = np.random.default_rng(0).integers(0, 4096, CONTEXT - deepest).tolist()
        for depth in range(1, deepest + 1):
            drafter.expand(text, [[branch] * depth for branch in range(SLOTS)], True)
        assert [backend.length(slot) for slot in range(SLOTS)] == [CONTEXT] * SLOTS
        assert refusals.count == 0 and deepest > 16


def test_concurrent_texts_that_fill_their_contexts_have_room(
    client: VerifierClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So have texts that come after them, and texts that outgrow their contexts."""
    texts, opened = 3, []

    def load_counted(name: str, options: LoadOptions, progress: object) -> Backend:
        backend = load(name, options)
        opened.append(_Refusals(backend, monkeypatch))
        return backend

    monkeypatch.setattr(draft_sources, "load", load_counted)
    source = DraftModel(engine=LoadOptions(context_length=CONTEXT, threads=1))
    ids = np.random.default_rng(0).integers(0, 4096, (2, texts, CONTEXT + 40)).tolist()
    with source.open(client, SLOTS, texts) as drafting:
        for each in ids:
            drafters = [make(TextSpec(), [0]) for make in drafting.drafters]
            for length in (CONTEXT - 20, CONTEXT - 10, CONTEXT + 30):
                for drafter, text in zip(drafters, each, strict=True):
                    for depth in range(1, 11):
                        drafter.expand(text[:length], [[branch] * depth for branch in range(SLOTS)], True)
    assert [refusals.count for refusals in opened] == [0]
