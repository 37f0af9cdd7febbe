"""Top logits selected on the device: their values, and that a compiling device meets no new shapes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.engines.backend import TopLogitsSpec
from specpair.speculation.sampling.top_logits import TopLogits

torch = pytest.importorskip("torch", reason="needs the extra in requirements/torch.txt")

from backends.torch.top_logits import greatest_of, select_top_logits, warm  # noqa: E402
from tests.backends.torch.recorder import Recorder  # noqa: E402

pytestmark = pytest.mark.engine("torch")

SLOTS, KEPT, VOCABULARY = 4, 3, 3000


def _logits(seed: int) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).normal(0.0, 3.0, (SLOTS, KEPT, VOCABULARY)).astype(np.float32))


def _wanted(seed: int) -> tuple[list[TopLogitsSpec], list[tuple[int, slice]]]:
    """Random sizes for some tokens of some slots, in any order, and the places of these tokens."""
    generator = np.random.default_rng(seed)
    wanted, places = [], []
    for slot in generator.permutation(SLOTS)[: generator.integers(1, SLOTS + 1)].tolist():
        below = int(generator.integers(1, VOCABULARY + 1))
        chosen = int(generator.choice([0, 1, 8, 1024]))
        size = min(below, chosen) if chosen else None  # None: whole rows
        wanted.append(TopLogitsSpec(size, float(generator.uniform(0.1, 2.0)), below))
        first = int(generator.integers(0, KEPT))
        places.append((slot, slice(first, int(generator.integers(first, KEPT)) + 1)))
    return wanted, places


@pytest.mark.parametrize("seed", range(20))
def test_top_logits_equal_those_of_the_row(seed: int) -> None:
    logits, (wanted, places) = _logits(seed), _wanted(seed)
    exact = logits.double().numpy()
    for rows, each, (slot, part) in zip(select_top_logits(logits, wanted, places), wanted, places, strict=True):
        for top, at in zip(rows, range(KEPT)[part], strict=True):
            numbers = exact[slot, at, : each.below]
            if each.size is None:
                assert np.array_equal(top, numbers.astype(np.float32))
                continue
            assert isinstance(top, TopLogits) and len(top.ids) >= each.size
            order = np.argsort(-numbers)[: len(top.ids)]
            assert top.ids.tolist() == order.tolist()
            assert top.log_sum == pytest.approx(np.log(np.exp(numbers / each.temperature).sum()), rel=1e-5)
            assert np.array_equal(top.whole(), numbers.astype(np.float32))


@given(
    vocabulary=st.integers(1, 300),
    chunk=st.integers(16, 120),
    size=st.sampled_from([1, 2, 8]),
    levels=st.sampled_from([2, 5, 10_000]),
    infinite=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_selection_by_chunks_equals_selection_from_the_whole_row(
    vocabulary: int, chunk: int, size: int, levels: int, infinite: float, seed: int
) -> None:
    """Also in more than two stages, with ties (few `levels`), with ids masked by -inf, and where the vocabulary is no
    multiple of the chunk."""
    generator = np.random.default_rng(seed)
    size = min(size, vocabulary)
    numbers = torch.from_numpy(generator.integers(0, levels, (2, 3, vocabulary)).astype(np.float32))
    numbers[:, :, int(vocabulary * infinite) :] = -torch.inf
    expected, _ = greatest_of(numbers, size, None)
    greatest, at = greatest_of(numbers, size, chunk)
    assert torch.equal(greatest, expected)
    finite = greatest > -torch.inf
    for row, known in zip(at.flatten(0, 1), finite.flatten(0, 1), strict=True):
        assert len(set(row[known].tolist())) == int(known.sum()), "each place once"
    assert torch.equal(numbers.gather(-1, at.clamp(max=vocabulary - 1))[finite], greatest[finite])


def test_more_than_was_compiled_ahead_gives_whole_rows() -> None:
    """In one pass with others, which keep their top logits."""
    wanted = [TopLogitsSpec(2000, 1.0, 2500), TopLogitsSpec(5, 1.0, VOCABULARY)]
    with Recorder() as at_first:
        warm(_logits(0), VOCABULARY, 2048)
    with Recorder() as later:
        whole, top = select_top_logits(_logits(7), wanted, [(0, slice(0, 2)), (1, slice(0, 2))], 2048)
    assert later.found <= at_first.found
    assert isinstance(whole, np.ndarray) and np.array_equal(whole, _logits(7)[0, :2, :2500].numpy())
    assert all(isinstance(each, TopLogits) for each in top)
    assert isinstance(select_top_logits(_logits(7), wanted[:1], [(0, slice(0, 1))])[0][0], TopLogits)


def test_selection_uses_only_shapes_seen_at_warm_up() -> None:
    with Recorder() as at_first:
        warm(_logits(0), VOCABULARY)
    for seed in range(20):
        logits, wanted = _logits(seed), _wanted(seed)
        with Recorder() as later:
            for rows in select_top_logits(logits, *wanted):
                if isinstance(rows[0], TopLogits):
                    rows[0].whole()
        assert later.found <= at_first.found
    with Recorder() as beyond:
        select_top_logits(_logits(0), [TopLogitsSpec(2000, 1.0, VOCABULARY)], [(0, slice(0, 1))])
    assert not beyond.found <= at_first.found, "a new shape is indeed found"
