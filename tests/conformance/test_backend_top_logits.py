"""The top logits of an engine equal those of its whole rows of logits."""

from collections.abc import Sequence

import numpy as np
import pytest

from specpair.engines.backend import Entry, TopLogitsSpec
from specpair.engines.errors import BadEntry
from specpair.speculation.sampling.sampling import Sampling, choose, choose_several, probabilities, top_logits_spec
from specpair.speculation.sampling.top_logits import TopLogits
from tests.conformance.conftest import Subject

SAMPLINGS = [
    Sampling(),
    Sampling(seed=1, temperature=0.7),
    Sampling(seed=2, temperature=1.3, top_p=0.9),
    Sampling(seed=3, temperature=0.9, top_k=40),
    Sampling(seed=4, temperature=1.0, top_k=2000, top_p=0.8),
]


def batch_of(subject: Subject) -> list[Entry]:
    """Two slots in the middle of their texts, and one without logits."""
    ids = subject.ids
    for slot in (0, 2):
        subject.feed(slot, 0, ids[slot : slot + 20])
    return [Entry(2, 20, ids[22:27], 1), Entry(0, 18, ids[18:19], 0), Entry(1, 0, ids[:30], 30)]


@pytest.mark.parametrize("below", [None, 200])
def test_top_logits_equal_those_of_whole_rows(subject: Subject, below: int | None) -> None:
    backend, batch = subject.backend, batch_of(subject)
    limit = below or backend.vocabulary.size
    size = min(64, limit)
    one = TopLogitsSpec(1, 1.0, limit)
    top = [list(rows) for rows in backend.extend_top_logits(batch, [TopLogitsSpec(size, 0.8, limit), one, one])]
    assert [backend.length(slot) for slot in range(3)] == [19, 30, 25]
    whole = [rows[:, :limit].copy() for rows in backend.extend(batch)]
    assert [len(rows) for rows in top] == [len(rows) for rows in whole] == [4, 1, 0]
    for row, exact in zip(top[0] + top[1], np.concatenate(whole[:2]), strict=True):
        if not isinstance(row, TopLogits):
            assert not backend.has_top_logits and subject.same(row, exact)
            continue
        assert row.size == limit and row.ids.max() < limit
        assert subject.same(row.logits, exact[row.ids])
        with np.errstate(under="ignore"):
            expected = np.log(np.exp(exact.astype(np.float64) / row.temperature).sum())
        assert row.log_sum == pytest.approx(expected, abs=1e-4 + 2 * subject.tolerance)
        rest = np.delete(exact, row.ids)
        assert rest.max(initial=-np.inf) <= row.logits[-1] + subject.tolerance
        fetched = row.whole()
        assert fetched.shape == (limit,)
        assert np.array_equal(fetched[row.ids], row.logits), "equal bits, so that choices do not depend on the way"


@pytest.mark.parametrize("below", [None, 200])
def test_whole_rows_are_returned_where_they_are_wanted(subject: Subject, below: int | None) -> None:
    """Beside top logits for other entries of the same pass."""
    backend, batch = subject.backend, batch_of(subject)
    limit = below or backend.vocabulary.size
    whole, top = TopLogitsSpec(None, 1.0, limit), TopLogitsSpec(8, 0.7, limit)
    rows, others, none = backend.extend_top_logits(batch, [whole, top, whole])
    assert isinstance(rows, np.ndarray) and rows.dtype == np.float32 and rows.shape == (4, limit)
    assert len(none) == 0 and len(others) == 1
    assert isinstance(others, np.ndarray) is not backend.has_top_logits
    rows = rows.copy()
    exact = backend.extend(batch)[0][:, :limit]
    assert all(subject.same(row, each) for row, each in zip(rows, exact, strict=True))


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_choices_from_top_logits_equal_those_from_whole_rows(subject: Subject, sampling: Sampling) -> None:
    backend = subject.backend
    wanted = top_logits_spec(sampling, backend.vocabulary.size, choices=8)
    rows = backend.extend_top_logits([Entry(0, 0, subject.ids[:40], 0)], [wanted])[0]
    for position, row in enumerate(rows):
        whole = row.whole().copy() if isinstance(row, TopLogits) else row
        token = choose(row, sampling, position)
        assert token == choose(whole, sampling, position)
        assert choose_several(row, sampling, position, 2) == choose_several(whole.copy(), sampling, position, 2)
        assert probabilities(row, [token], sampling) == pytest.approx(probabilities(whole, [token], sampling), rel=1e-4)


def _wrong(size: int) -> list[Sequence[TopLogitsSpec]]:
    good = TopLogitsSpec(1, 1.0, size)
    return [
        [],
        [good, good],
        [TopLogitsSpec(0, 1.0, size)],
        [TopLogitsSpec(3, 1.0, 2)],
        [TopLogitsSpec(1, 1.0, size + 1)],
        [TopLogitsSpec(None, 1.0, size + 1)],
        [TopLogitsSpec(None, 1.0, 0)],
    ]


def test_bad_top_logits_requests_are_refused_and_change_nothing(subject: Subject) -> None:
    subject.feed(0, 0, subject.ids[:5])
    for wanted in _wrong(subject.backend.vocabulary.size):
        with pytest.raises(BadEntry, match="1 <= size <= below"):
            subject.backend.extend_top_logits([Entry(0, 5, subject.ids[5:6], 0)], wanted)
    assert subject.backend.length(0) == 5
