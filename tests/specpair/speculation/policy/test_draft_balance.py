"""Where draft tokens bring less than was thought, they soon have to be sure, and a text is hardly slower for them."""

from collections.abc import Sequence
from typing import Any

import pytest

from backends.recurrent import RecurrentStates
from backends.scripted import Script
from specpair.drafters.base import NgramDrafter
from specpair.engines.backend import Entry
from specpair.speculation.policy.decisions import DraftBalance
from specpair.speculation.policy.schedule import Mechanisms
from specpair.speculation.policy.timing import LatencyModel
from tests.specpair.speculation.policy.virtual_pair import run

STEP = 0.04  # seconds


class NoStates:
    """The states of slots, for an engine that has none."""

    def save(self, slot: int, spare: Any) -> Any: ...
    def restore(self, slot: int, state: Any) -> None: ...
    def cut(self, slot: int, length: int, back: int) -> None: ...
    def empty(self, slot: int) -> None: ...
    def copy(self, source: int, destination: int, length: int) -> None: ...


class Hybrid:
    """What passes of a hybrid model take, which reads accepted tokens again after a rejection."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._states = RecurrentStates(NoStates(), 2, self._read, 512, 258, clock=lambda: self._seconds)

    def _read(self, entry: Entry) -> None:
        self._seconds += told(len(entry.tokens))

    def takes(self, batch: Sequence[Entry]) -> float:
        (entry,), before = batch, self._seconds
        self._read(self._states.prepared(entry))
        return self._seconds - before


def told(tokens: int) -> float:
    return STEP + 0.0008 * (tokens - 1)


def rate(seed: int, support: int) -> float:
    """Tokens per second, times the target alone, with lookup in a text of `support` different tokens."""
    passes, script = Hybrid(), Script(seed=seed, support=support)
    pair = run(
        NgramDrafter(6),
        Mechanisms(),
        rtt=0.0007,
        draft=5e-5,
        curve=told,
        takes=passes.takes,
        script=script,
        count=128,
    )
    return pair.course.tokens_per_second * STEP


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("support", [16, 24])
def test_a_text_that_hardly_repeats_is_not_slower_for_its_drafts(seed: int, support: int) -> None:
    assert rate(seed, support) > 0.98


@pytest.mark.parametrize("seed", range(2))
def test_a_text_that_repeats_gains_as_much_as_before(seed: int) -> None:
    assert rate(seed, 2) > 5.0


def test_what_drafts_bring_and_cost_is_added_up() -> None:
    balance = DraftBalance(LatencyModel([STEP]))
    for _ in range(4):
        balance.plain(STEP)
    begun = balance.passes
    balance.judged(3, 2 * STEP)
    assert balance.passes == pytest.approx(begun + 1.0)
    balance.plain(1.5 * STEP)  # it read accepted tokens again
    assert balance.passes == pytest.approx(begun + 0.5)
    balance.judged(1, 1.7 * STEP)
    assert not balance.in_debt
    balance.judged(1, 1.4 * STEP)
    assert balance.in_debt


def test_a_debt_is_forgiven_in_time() -> None:
    balance = DraftBalance(LatencyModel([STEP]))
    balance.judged(1, 2 * STEP)
    balance.plain(STEP)
    tokens = 0
    while balance.in_debt:
        balance.plain(STEP)
        tokens += 1
    assert 50 < tokens < 200
