"""The toy model that stands in for a real one: a pure function of its last tokens, with knobs for what tests need."""

import numpy as np
import pytest

from backends.base import BackendError, EngineFailure, Entry, Logits
from backends.scripted import BEGIN, END, ORDER, Script, ScriptedBackend

CONTEXTS = [[first, second, 3, 4] for first in range(40) for second in range(10)]


def greedy_agreement(agreement: float) -> float:
    target = ScriptedBackend(Script(seed=5))
    drafter = ScriptedBackend(Script(seed=5, agreement=agreement))
    same = [target.logits_after(c).argmax() == drafter.logits_after(c).argmax() for c in CONTEXTS]
    return sum(same) / len(same)


@pytest.mark.parametrize("agreement", [0.0, 0.5, 0.9, 1.0])
def test_agreement_is_the_share_of_contexts_on_which_a_drafter_says_the_same(agreement: float) -> None:
    chance = 1 / 257  # two unrelated scripts agree that often
    expected = agreement + (1 - agreement) * chance
    deviation = (expected * (1 - expected) / len(CONTEXTS)) ** 0.5
    assert abs(greedy_agreement(agreement) - expected) <= 4 * deviation


def test_the_last_tokens_decide_and_only_they() -> None:
    backend = ScriptedBackend()
    context = list(range(ORDER))
    assert np.array_equal(backend.logits_after([9, 9, *context]), backend.logits_after(context))
    for at in range(ORDER):
        other = [*context[:at], 99, *context[at + 1 :]]
        assert not np.array_equal(backend.logits_after(other), backend.logits_after(context))


def test_seeds_are_models() -> None:
    rows = [ScriptedBackend(Script(seed=seed)).logits_after([1]) for seed in (1, 2)]
    assert not np.array_equal(*rows)
    assert np.array_equal(rows[0], ScriptedBackend(Script(seed=1)).logits_after([1]))


def test_only_the_support_and_the_end_can_be_said() -> None:
    row = ScriptedBackend(Script(support=3, vocabulary_size=300)).logits_after([1, 2])
    assert row.shape == (300,)
    assert np.flatnonzero(np.isfinite(row)).tolist() == [0, 1, 2, END]
    assert ScriptedBackend().logits_after([1])[BEGIN] == -np.inf


def test_the_end_comes_as_early_as_its_bias_says() -> None:
    def ends(bias: float) -> int:
        backend = ScriptedBackend(Script(end_bias=bias))
        return sum(int(backend.logits_after(context).argmax() == END) for context in CONTEXTS)

    assert ends(-100.0) == 0
    assert 0 < ends(8.0) < ends(12.0) <= len(CONTEXTS)
    assert ends(100.0) == len(CONTEXTS)


class Failing(ScriptedBackend):
    """Fails within its second pass, after it has changed its rows."""

    def _forward(self, batch: list[Entry]) -> list[Logits]:  # type: ignore[override]
        result = super()._forward(batch)
        if self.passes == 2:
            raise EngineFailure("a device went away")
        return result


def test_a_failed_pass_leaves_its_rows_empty_and_the_others_alone() -> None:
    """The contract's part of a failure: engines only raise."""
    backend = Failing(rows=3)
    backend.extend([Entry(row, 0, [1, 2, 3], 3) for row in range(3)])
    with pytest.raises(BackendError, match="a device went away"):
        backend.extend([Entry(0, 3, [4], 0), Entry(1, 1, [4], 0)])
    assert [backend.length(row) for row in range(3)] == [0, 0, 3]
    again = backend.extend([Entry(0, 0, [1, 2, 3, 4], 3), Entry(2, 3, [4], 0)])
    assert np.array_equal(again[0], again[1])
