"""The scripted backend: a toy model that is a pure function of its last tokens, with parameters for tests."""

import numpy as np
import pytest

from backends.scripted import ORDER, Script, ScriptedBackend

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
