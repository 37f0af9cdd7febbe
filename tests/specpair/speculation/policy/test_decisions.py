"""Drafts that bring less than was thought cost little, also where both ends compute on the same cores by turns."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from backends.recurrent import RecurrentStates
from backends.scripted import Script
from specpair.drafters.base import NgramDrafter
from specpair.engines.backend import Entry
from specpair.speculation.draft import Draft, TreeLimits, leaves
from specpair.speculation.drafting.acceptance_model import AcceptanceModel
from specpair.speculation.drafting.node_selection import DraftStep
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.decisions import DraftBalance
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import IN_TURNS, LOCKSTEP, Mechanisms, mechanisms_of
from specpair.speculation.policy.timing import LatencyModel
from specpair.speculation.policy.verifier_timeline import InFlightDraft
from tests.specpair.speculation.policy.virtual_pair import Knowing, run

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


def _sent(limits: TreeLimits = TreeLimits(), wider: float = 0.0) -> Draft:
    """The first draft to a verifier whose passes cost the same at any width, by a drafter that is not sure.

    `wider`: seconds that another branch has added to a draft step of 2 ms.
    """
    latencies = LatencyModel([0.05] * 64)
    latencies.exchanged(0.02, 0.0, 0.0)
    latencies.drafted(1, 0.002)
    for _ in range(4):
        latencies.drafted(2, 0.002 + wider)
    controller = SpeculationController(
        [10, 11, 12, 13],
        1000,
        frozenset({999}),
        Estimates(latencies, AcceptanceModel()),
        DraftLength(None, 64),
        tree_limits=limits,
        width=4,
        mechanisms=replace(LOCKSTEP, trees=True),
    )
    now = 0.0
    while (request := controller.next_draft(now)) is None:
        step = controller.next_step(now)
        assert step is not None
        now += 0.002
        controller.drafted([Proposal.of(range(20, 26), [0.5, *[0.1] * 5])] * len(step.nodes), len(step.nodes), now)
    return request.draft


@pytest.mark.parametrize("limits", [TreeLimits(leaves=1), TreeLimits(leaves=3), TreeLimits(nodes=6), TreeLimits(2, 5)])
def test_a_tree_holds_no_more_than_the_verifier_takes(limits: TreeLimits) -> None:
    whole, sent = _sent(), _sent(limits)
    assert len(leaves(whole.parents)) > 3 and len(whole) > 6
    assert sent.cut(limits) == sent and len(sent.likeliest()) > 1
    assert sent.is_chain if limits.leaves == 1 else len(sent) < len(whole)


def test_no_branches_are_sent_where_they_take_much_of_a_draft_step() -> None:
    assert not _sent(wider=0.0001).is_chain
    assert _sent(wider=0.0004).is_chain


PASS, WIDER = 0.06, 0.015  # seconds of a pass: a model of 1.5 B parameters in 4 bits on two cores
PASSES: dict[str, Any] = {"rtt": 0.0002, "step": PASS, "wider": WIDER}
CHEAP, DEAR = 0.004, 0.027  # seconds of a draft step


@pytest.mark.parametrize(("right", "draft"), [(0.95, CHEAP), (0.6, CHEAP), (0.0, DEAR)])
def test_a_draft_step_and_the_verification_of_a_draft_never_run_at_once(
    right: float, draft: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, drafts, drafted = (
        SpeculationController.next_step,
        SpeculationController.next_draft,
        SpeculationController.drafted,
    )
    begun, under_way = 0, False

    def next_step(self: SpeculationController, now: float) -> DraftStep | None:
        nonlocal begun, under_way
        step = steps(self, now)
        if step is not None:
            assert not any(len(each.draft) for each in self.drafts_in_flight)
            begun, under_way = begun + 1, True
        return step

    def ended(
        self: SpeculationController, found: Sequence[Proposal], read: int, now: float, onward: bool = False
    ) -> float:
        nonlocal under_way
        under_way = onward
        return drafted(self, found, read, now, onward)

    def next_draft(self: SpeculationController, now: float) -> InFlightDraft | None:
        draft = drafts(self, now)
        assert draft is None or not len(draft.draft) or not under_way
        return draft

    monkeypatch.setattr(SpeculationController, "next_step", next_step)
    monkeypatch.setattr(SpeculationController, "next_draft", next_draft)
    monkeypatch.setattr(SpeculationController, "drafted", ended)
    run(Knowing(right), IN_TURNS, **PASSES, draft=draft)
    assert begun


def test_a_useless_drafter_that_takes_the_verifier_s_time_is_not_tried_again_and_again() -> None:
    course = run(Knowing(0.1), IN_TURNS, **PASSES, draft=DEAR).course
    assert course.steps < 12
    assert course.tokens_per_second > 0.97 / PASS


@pytest.mark.parametrize("self_continue", [False, True])
def test_what_the_ends_use_depends_on_cores_and_verifier(self_continue: bool) -> None:
    how = {"self_continue": self_continue}
    for may_change_mode in (False, True):
        apart = mechanisms_of(shares_cores=False, may_change_mode=may_change_mode, **how)
        assert apart == Mechanisms(self_continue=self_continue)
    assert mechanisms_of(shares_cores=True, may_change_mode=False, **how) == replace(IN_TURNS, **how)
