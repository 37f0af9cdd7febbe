"""When the next request of a session is due, and the batching window: the decision, and its gain for many clients."""

import random
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import ScriptedBackend
from specpair.engines.backend import Entry, Logits
from specpair.speculation.policy.schedule import NOT_SOON
from tests.verifier_server.engine.virtual import World
from verifier_server.engine.arrived_drafts import Answer
from verifier_server.engine.sequence_state import LONGEST, ArrivalEstimator, window_until
from verifier_server.sessions import Session


def after(gaps: list[float], stated: float | None = None) -> ArrivalEstimator:
    """An estimator that has seen these gaps between answers and requests. The last answer was given at 100."""
    arrivals, now = ArrivalEstimator(), 100.0 - sum(gaps)
    for gap in gaps:
        arrivals.answered(now, stated)
        now += gap
        arrivals.arrived(now)
    arrivals.answered(now, stated)
    return arrivals


def test_a_single_outlier_changes_nothing() -> None:
    regular = [0.25] * 6
    for outlier in ([30.0], [0.0], [30.0, 0.0]):
        arrivals = after([*regular, *outlier][:8])
        assert (arrivals.soonest, arrivals.latest) == (100.25, 100.25)


def test_measured_and_stated_gaps_are_not_mixed() -> None:
    arrivals = after([0.5] * 8)
    arrivals.answered(100.0, 0.125)
    assert (arrivals.soonest, arrivals.latest) == (100.125, 100.125)
    arrivals.answered(101.0, None)
    assert (arrivals.soonest, arrivals.latest) == (101.5, 101.5)


def test_that_nothing_should_wait_is_no_measure_of_a_gap() -> None:
    arrivals, now = ArrivalEstimator(), 0.0
    for stated, gap in [(NOT_SOON, 0.1), (NOT_SOON, 0.1), (0.02, 0.03), (NOT_SOON, 0.1), (0.02, 0.03), (NOT_SOON, 0.1)]:
        arrivals.answered(now, stated)
        assert stated is not NOT_SOON or arrivals.soonest is None, "nothing waits for it"
        now += gap
        arrivals.arrived(now)
    arrivals.answered(now, 0.02)
    assert arrivals.soonest == pytest.approx(now + 0.02)
    assert arrivals.latest == pytest.approx(now + 0.03)
    arrivals.answered(now, NOT_SOON)
    assert arrivals.soonest is None
    assert arrivals.latest == pytest.approx(now + 0.1)


def test_nothing_is_due_while_a_request_waits_or_after_the_end() -> None:
    arrivals = after([0.25])
    arrivals.arrived(100.25)
    assert (arrivals.soonest, arrivals.latest) == (None, None)
    arrivals.answered(100.5, None)
    arrivals.over()
    assert (arrivals.soonest, arrivals.latest) == (None, None)


def test_a_request_sent_before_the_last_answer_was_known_changes_nothing() -> None:
    arrivals = after([0.25] * 3, stated=0.2)
    expected = arrivals.soonest, arrivals.latest
    arrivals.arrived(100.01)
    assert arrivals.soonest is None
    arrivals.overtaken()
    assert (arrivals.soonest, arrivals.latest) == expected
    arrivals.overtaken()  # a second one of this kind
    assert (arrivals.soonest, arrivals.latest) == expected


moments = st.floats(-1.0, 2.0)


def gain(now: float, step: float, ready: int, expected: list[float], until: float) -> float:
    """The total gain of waiting until then, in seconds."""
    arrived = sum(now < moment <= until for moment in expected)
    return arrived * (step - (until - now)) - ready * (until - now)


@given(
    last=st.floats(0.0, 1.0),
    step=st.floats(0.01, 3.0),
    ready=st.integers(1, 40),
    expected=st.lists(moments, max_size=12),
)
def test_the_window_with_the_largest_gain_is_chosen(
    last: float, step: float, ready: int, expected: list[float]
) -> None:
    until = window_until(0.0, last, step, ready, expected)
    within = [moment for moment in expected if 0.0 < moment <= last]
    best = max((gain(0.0, step, ready, expected, moment) for moment in within), default=0.0)
    if until is None:
        assert best <= 0.0
    else:
        assert until in within
        assert gain(0.0, step, ready, expected, until) == best > 0.0


def lockstep(world: World, session: Session, draft_time: float, rounds: int) -> None:
    """Send `rounds` requests, each `draft_time` seconds after the answer, so that the next request is expected."""

    def answered(answer: Answer) -> None:
        nonlocal rounds
        rounds -= 1
        if rounds:
            world.after(draft_time, lambda: world.ask(session, None, [], answered))

    world.ask(session, None, [], answered)
    while rounds:
        world.run(world.now + 0.0001)


def test_the_window_is_bounded_however_many_requests_arrive() -> None:
    """Each request that arrives is followed by another one that is expected soon, and makes that wait cheaper."""
    world = World(Constant(slots=6, context_length=4096))
    first = world.open([256, 0])
    world.ask(first)
    world.run(1.0)
    others = [world.open([256, number]) for number in range(1, 6)]
    for number, session in enumerate(others, 1):
        lockstep(world, session, 0.1 + 0.0015 * number, 8)
        world.run(world.now + 0.1)
    over = world.now

    def again(session: Session, number: int, _: Answer) -> None:
        world.after(0.1 + 0.0015 * number, lambda: world.ask(session))

    for number, session in enumerate(others, 1):  # one pass answers all; their next requests come one by one
        world.ask(session, None, [], partial(again, session, number))
    world.run(over + 0.026)
    answered = world.plans[-1][0] + 0.025 + 5 * 0.0002
    world.run(answered + 0.1)
    before = len(world.plans)
    world.ask(first)
    world.run(answered + 0.12)
    began, plan = world.plans[before]
    assert 0.0014 < began - (answered + 0.1) < LONGEST * 0.026
    assert 2 <= len(plan.parts) < 6


class Constant(ScriptedBackend):
    """Always returns the same logits, at no cost: these tests are about time."""

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        return [np.zeros((len(entry.tokens) - entry.logits_from, 258), dtype=np.float32) for entry in batch]


def tokens_per_second(
    clients: int, draft_time: float, batching_window: float, jitter: float, seconds: float = 6.0
) -> float:
    """Tokens per second of all clients, which ask for a token each `draft_time` seconds (± `jitter`) after the last.

    A pass takes 25 ms and 0.2 ms per token. The clients start within the first 0.2 s; each starts a new text after 50
    to 150 tokens.
    """
    chance = random.Random(1)
    world = World(Constant(slots=clients, context_length=4096), batching_window=batching_window, check=False)
    got = 0

    def pause() -> float:
        return max(0.0, draft_time + chance.uniform(-jitter, jitter))

    def begin(number: int) -> None:
        session = world.open([256, number] + [0] * 8, max_tokens=chance.randint(50, 150))

        def answered(answer: Answer) -> None:
            nonlocal got
            got += len(answer.tokens)
            if answer.finish_reason is None:
                world.after(pause(), lambda: world.ask(session, answer.total_tokens, [], answered))
            else:
                world.scheduler.forget(session)
                world.after(pause(), lambda: begin(number))

        world.ask(session, session.prompt_len, [], answered)

    for number in range(clients):
        world.at(chance.uniform(0.0, 0.2), partial(begin, number))
    world.run(1.0)
    before = got
    world.run(1.0 + seconds)
    return (got - before) / seconds


@pytest.mark.slow
@pytest.mark.parametrize("clients", [2, 8, 32])
@pytest.mark.parametrize("draft_time", [0.0005, 0.0015])
def test_clients_that_draft_fast_share_passes(clients: int, draft_time: float) -> None:
    """Without a window, the first client to return has a pass of its own, and two groups alternate for ever."""
    at_once = tokens_per_second(clients, draft_time, 0.0, 0.0003)
    held = tokens_per_second(clients, draft_time, LONGEST, 0.0003)
    assert at_once == pytest.approx(clients / (2 * 0.025 + 0.0002 * clients), rel=0.05), "half a batch each"
    assert held > 1.5 * at_once


@pytest.mark.slow
@pytest.mark.parametrize("batching_window", [LONGEST, 0.6])
@pytest.mark.parametrize("clients", [2, 5, 32])
@pytest.mark.parametrize(
    ("draft_time", "jitter"), [(0.004, 0.004), (0.02, 0.0005), (0.025, 0.004), (0.05, 0.002), (0.1, 0.01)]
)
def test_the_window_never_costs_more_than_two_percent(
    batching_window: float, clients: int, draft_time: float, jitter: float
) -> None:
    at_once = tokens_per_second(clients, draft_time, 0.0, jitter, 3.0)
    assert tokens_per_second(clients, draft_time, batching_window, jitter, 3.0) > 0.98 * at_once
