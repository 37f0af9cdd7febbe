"""The scripted backend: a toy model that is a pure function of its last tokens, with parameters for tests."""

import numpy as np
import pytest

from backends.scripted import BEGIN, END, ORDER, Script, ScriptedBackend
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import BackendError, EngineFailure

CONTEXTS = [[first, second, 3, 4] for first in range(40) for second in range(10)]


def greedy_agreement(agreement: float) -> float:
    target = ScriptedBackend(Script(seed=5))
    drafter = ScriptedBackend(Script(seed=5, agreement=agreement))
    same = [target.logits_after(c).argmax() == drafter.logits_after(c).argmax() for c in CONTEXTS]
    return sum(same) / len(same)


@pytest.mark.parametrize("agreement", [0.0, 0.5, 0.9, 1.0])
def test_agreement_is_the_share_of_contexts_with_equal_logits(agreement: float) -> None:
    chance = 1 / 257  # two unrelated scripts agree that often
    expected = agreement + (1 - agreement) * chance
    deviation = (expected * (1 - expected) / len(CONTEXTS)) ** 0.5
    assert abs(greedy_agreement(agreement) - expected) <= 4 * deviation


def test_logits_depend_on_the_last_tokens_only() -> None:
    backend = ScriptedBackend()
    context = list(range(ORDER))
    assert np.array_equal(backend.logits_after([9, 9, *context]), backend.logits_after(context))
    for at in range(ORDER):
        other = [*context[:at], 99, *context[at + 1 :]]
        assert not np.array_equal(backend.logits_after(other), backend.logits_after(context))


def test_different_seeds_are_different_models() -> None:
    one, other = (ScriptedBackend(Script(seed=seed)).logits_after([1]) for seed in (1, 2))
    assert not np.array_equal(one, other)
    assert np.array_equal(one, ScriptedBackend(Script(seed=1)).logits_after([1]))


def test_only_the_support_and_the_end_have_finite_logits() -> None:
    row = ScriptedBackend(Script(support=3, vocabulary_size=300)).logits_after([1, 2])
    assert row.shape == (300,)
    assert np.flatnonzero(np.isfinite(row)).tolist() == [0, 1, 2, END]
    assert ScriptedBackend().logits_after([1])[BEGIN] == -np.inf


def test_larger_end_bias_ends_more_texts() -> None:
    def ends(bias: float) -> int:
        backend = ScriptedBackend(Script(end_bias=bias))
        return sum(int(backend.logits_after(context).argmax() == END) for context in CONTEXTS)

    assert ends(-100.0) == 0
    assert 0 < ends(8.0) < ends(12.0) <= len(CONTEXTS)
    assert ends(100.0) == len(CONTEXTS)


class Failing(ScriptedBackend):
    """Fails in its second pass, after it has changed its slots."""

    def _forward(self, batch: list[Entry]) -> list[Logits]:  # type: ignore[override]
        result = super()._forward(batch)
        if self.passes == 2:
            raise EngineFailure("a device went away")
        return result


def test_failed_pass_empties_its_slots_only() -> None:
    """The base class empties the slots: engines only raise."""
    backend = Failing(slots=3)
    backend.extend([Entry(slot, 0, [1, 2, 3], 3) for slot in range(3)])
    with pytest.raises(BackendError, match="a device went away"):
        backend.extend([Entry(0, 3, [4], 0), Entry(1, 1, [4], 0)])
    assert [backend.length(slot) for slot in range(3)] == [0, 0, 3]
    again = backend.extend([Entry(0, 0, [1, 2, 3, 4], 3), Entry(2, 3, [4], 0)])
    assert np.array_equal(again[0], again[1])
