"""Where both ends compute on the same cores: draft steps and passes take turns, and a useless drafter rests."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from specpair.speculation.drafts.node_selection import DraftStep
from specpair.speculation.drafts.tree import Proposal
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.schedule import IN_TURNS, Mechanisms, mechanisms_of
from specpair.speculation.policy.verifier_timeline import InFlightDraft
from tests.specpair.speculation.policy.virtual_pair import Knowing, run

STEP, WIDER = 0.06, 0.015  # seconds of a pass: a model of 1.5 B parameters in 4 bits on two cores
PASSES: dict[str, Any] = {"rtt": 0.0002, "step": STEP, "wider": WIDER}
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
    assert course.tokens_per_second > 0.97 / STEP


@pytest.mark.parametrize("self_continue", [False, True])
def test_what_the_ends_use_depends_on_cores_and_verifier(self_continue: bool) -> None:
    how = {"self_continue": self_continue}
    for may_change_mode in (False, True):
        apart = mechanisms_of(shares_cores=False, may_change_mode=may_change_mode, **how)
        assert apart == Mechanisms(self_continue=self_continue)
    assert mechanisms_of(shares_cores=True, may_change_mode=False, **how) == replace(IN_TURNS, **how)
