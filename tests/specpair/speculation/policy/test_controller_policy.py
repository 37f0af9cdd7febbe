"""The mechanisms pay where they should, in virtual time: the real decisions of both ends with assumed costs.

All times are seconds. The factors are well below today's results, but above those of a mechanism that has stopped
working.
"""

from dataclasses import replace
from typing import Any

import pytest

from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms, Schedule
from tests.specpair.speculation.policy.virtual_pair import Knowing, run

pytestmark = pytest.mark.slow

ALL = Mechanisms()
WAITING = replace(ALL, self_continue=False)  # the verifier waits for drafts
OVERLAP = replace(WAITING, in_flight=1, after_recovered=False)


def _rate(right: float, mechanisms: Mechanisms, **world: Any) -> float:
    """Tokens per second."""
    return run(Knowing(right, 0.4, 4), mechanisms, **world).course.tokens_per_second


@pytest.mark.parametrize("step", [0.01, 0.025, 0.05])
@pytest.mark.parametrize("draft", [0.002, 0.01, 0.04])
@pytest.mark.parametrize("rtt", [0.05, 0.1])
def test_useless_drafter_costs_nothing_on_a_long_link(rtt: float, draft: float, step: float) -> None:
    target_alone = 1.0 / step
    assert _rate(0.0, ALL, rtt=rtt, step=step, wider=0.0002, draft=draft) >= 0.98 * target_alone


@pytest.mark.parametrize("rtt", [0.005, 0.02])
@pytest.mark.parametrize("step", [0.01, 0.025])
def test_useless_drafter_costs_little_on_a_short_link(rtt: float, step: float) -> None:
    target_alone = 1.0 / step
    assert _rate(0.0, ALL, rtt=rtt, step=step, wider=0.0002, draft=0.002) >= 0.95 * target_alone


@pytest.mark.parametrize("right", [0.1, 0.2, 0.3])
@pytest.mark.parametrize(("rtt", "step"), [(0.02, 0.05), (0.04, 0.1)])
def test_verifier_does_not_wait_for_drafts_worth_less_than_a_step(rtt: float, step: float, right: float) -> None:
    """The drafts arrive within half a step, and yield hardly more than the token of a self-continuation step."""
    target_alone = 1.0 / step
    assert _rate(right, ALL, rtt=rtt, step=step, wider=0.0004, draft=0.002) >= (0.97 + right / 5) * target_alone


@pytest.mark.parametrize("rtt", [0.001, 0.01])
@pytest.mark.parametrize(("right", "factor"), [(0.97, 1.25), (0.85, 1.05)])
def test_overlap_hides_drafting_that_takes_half_a_step(rtt: float, right: float, factor: float) -> None:
    world: dict[str, Any] = {"rtt": rtt, "step": 0.05, "wider": 0.0005, "draft": 0.005, "length": 5}
    assert _rate(right, replace(OVERLAP, in_flight=2), **world) > factor * _rate(right, LOCKSTEP, **world)


@pytest.mark.parametrize("right", [0.6, 0.9, 0.97])
@pytest.mark.parametrize("rtt", [0.001, 0.03])
def test_overlap_is_never_worse_than_lockstep(rtt: float, right: float) -> None:
    world: dict[str, Any] = {"rtt": rtt, "step": 0.04, "wider": 0.0005, "draft": 0.006}
    lockstep = _rate(right, LOCKSTEP, **world)
    for mechanisms in (OVERLAP, WAITING, ALL):
        assert _rate(right, mechanisms, **world) > 0.98 * lockstep


@pytest.mark.parametrize(("right", "factor"), [(0.97, 1.25), (0.9, 1.08)])
def test_several_drafts_in_flight_fill_a_long_link(right: float, factor: float) -> None:
    world: dict[str, Any] = {"rtt": 0.1, "step": 0.02, "wider": 0.0003, "draft": 0.002}
    one, several = (_rate(right, replace(WAITING, in_flight=count), **world) for count in (1, 6))
    assert several > factor * one


@pytest.mark.parametrize(("second", "share", "factor"), [(0.5, 0.4, 1.1), (0.9, 0.75, 1.18)])
def test_drafts_behind_recovered_tokens_are_often_ready_and_pay(second: float, share: float, factor: float) -> None:
    world: dict[str, Any] = {"rtt": 0.001, "step": 0.025, "wider": 0.0002, "draft": 0.003}
    without = run(Knowing(0.8, second, 6), replace(WAITING, after_recovered=False), **world)
    next_draft_ready = run(Knowing(0.8, second, 6), WAITING, **world)
    assert without.controller is not None and next_draft_ready.controller is not None
    assert (
        without.controller.text.next_draft_ready == 0
        and without.controller.text.mispredicted == next_draft_ready.controller.text.mispredicted > 50
    )
    assert next_draft_ready.controller.text.next_draft_ready > share * next_draft_ready.controller.text.mispredicted
    assert next_draft_ready.course.tokens_per_second > factor * without.course.tokens_per_second


@pytest.mark.parametrize("right", [0.3, 0.6, 0.8])
def test_self_continuation_beats_waiting_on_a_long_link(right: float) -> None:
    world: dict[str, Any] = {"rtt": 0.1, "step": 0.02, "wider": 0.0003, "draft": 0.002}
    assert _rate(right, ALL, **world) > 1.3 * _rate(right, WAITING, **world)


@pytest.mark.parametrize("right", [0.3, 0.8])
@pytest.mark.parametrize("mechanisms", [OVERLAP, WAITING, ALL], ids=["overlap", "with several in flight", "all"])
@pytest.mark.parametrize(
    ("rtt", "step", "wider", "draft"),
    [(0.001, 0.025, 0.0002, 0.002), (0.001, 0.025, 0.003, 0.006), (0.1, 0.05, 0.0005, 0.01)],
    ids=str,
)
def test_automatic_length_is_about_as_good_as_the_best_fixed_one(
    rtt: float, step: float, wider: float, draft: float, mechanisms: Mechanisms, right: float
) -> None:
    world: dict[str, Any] = {"rtt": rtt, "step": step, "wider": wider, "draft": draft, "count": 150}
    fixed = [_rate(right, mechanisms, length=length, **world) for length in (0, 1, 2, 4, 8)]
    assert _rate(right, mechanisms, **world) >= 0.95 * max(fixed)


@pytest.mark.parametrize("right", [0.5, 0.9])
@pytest.mark.parametrize("wider", [0.0005, 0.01])
@pytest.mark.parametrize(("uneven", "said"), [(0.2, 1.0), (0.0, 1.3), (0.1, 0.7), (0.2, 1.5)])
def test_drafts_are_in_time_although_passes_differ_from_estimates(
    uneven: float, said: float, wider: float, right: float
) -> None:
    """A draft timed for the end of a step that ended earlier would find the next step begun, time after time."""
    world: dict[str, Any] = {"rtt": 0.001, "step": 0.03, "wider": wider, "draft": 0.001, "uneven": uneven, "said": said}
    assert _rate(right, ALL, **world) > 0.93 * _rate(right, LOCKSTEP, **world)


def test_overlap_that_gains_next_to_nothing_is_not_used() -> None:
    """Overlap takes power, and where both ends run on one machine, the verifier's time."""
    world: dict[str, Any] = {"rtt": 0.001, "step": 0.05, "wider": 0.01, "draft": 0.0005}
    pair = run(Knowing(0.6, width=4), ALL, **world)
    assert pair.controller is not None and pair.controller.schedule is Schedule.LOCKSTEP
    assert pair.course.steps < 1.5 * run(Knowing(0.6), LOCKSTEP, **world).course.steps


def test_schedule_names_what_pays() -> None:
    world: dict[str, Any] = {"rtt": 0.1, "step": 0.02, "wider": 0.0003, "draft": 0.002}
    for right, schedule in ((0.0, Schedule.SELF_CONTINUED), (0.95, Schedule.OVERLAPPED)):
        controller = run(Knowing(right), ALL, **world).controller
        assert controller is not None and controller.schedule is schedule
