"""Where asking the draft model does not pay, drafts are looked up in the text; where it does, nothing changes."""

import pytest

from backends.scripted import Script
from speculation.ngram import NgramIndex
from speculation.operation import LOCKSTEP, Mechanisms
from speculation.pilot import Pilot
from speculation.timing import Times
from speculation.tree import Prediction
from tests.speculation.virtual_pair import Knowing, run

REPEATS = Script(seed=3, support=2)  # says so few things that it soon says them again
NEVER = Script()  # hardly says anything twice


def rate(script: Script, right: float, draft: float, lookup: bool, mechanisms: Mechanisms = Mechanisms()) -> float:
    """Tokens a second of a target of 40 ms a step."""
    world = {"rtt": 10.0, "step": 40.0, "wider": 0.3, "draft": draft}
    return run(
        Knowing(right, script=script), mechanisms, script=script, lookup=lookup, **world
    ).course.tokens_per_second  # type: ignore[arg-type]


@pytest.mark.parametrize("mechanisms", [Mechanisms(), Mechanisms(self_continue=False), LOCKSTEP], ids=str)
def test_a_model_that_is_too_slow_is_not_asked_where_the_text_repeats_itself(mechanisms: Mechanisms) -> None:
    alone = 1e3 / 40.0
    slow = rate(REPEATS, 0.9, 400.0, lookup=False, mechanisms=mechanisms)
    assert slow < 1.3 * alone
    assert rate(REPEATS, 0.9, 400.0, lookup=True, mechanisms=mechanisms) > 1.8 * slow


def test_a_model_that_is_always_wrong_is_not_asked_either() -> None:
    assert rate(REPEATS, 0.0, 4.0, lookup=True) > 1.8 * rate(REPEATS, 0.0, 4.0, lookup=False)


def test_where_nothing_repeats_looking_costs_nothing() -> None:
    for right, draft in ((0.9, 400.0), (0.0, 4.0), (0.9, 4.0)):
        assert rate(NEVER, right, draft, lookup=True) > 0.97 * rate(NEVER, right, draft, lookup=False)


def test_a_model_that_pays_goes_on_drafting() -> None:
    assert rate(REPEATS, 0.95, 2.0, lookup=True) > 0.95 * rate(REPEATS, 0.95, 2.0, lookup=False)


@pytest.mark.parametrize(("draft", "found"), [(400.0, True), (1.0, False)])
def test_a_guess_says_which_of_its_drafts_were_looked_up(draft: float, found: bool) -> None:
    times = Times([40.0, 40.5, 41.0])
    times.exchanged(10.0, 0.0, 0.0)
    times.drafted(1, draft)
    pilot = Pilot([*range(10, 30)] * 4, 1000, frozenset(), times, max_drafts=64, lookup=NgramIndex())
    now = 0.0
    while (flight := pilot.next_guess(now)) is None:
        assert pilot.next_step(now) is not None
        now += draft
        pilot.drafted([Prediction(10 + len(pilot.text.tree.main()), 0.95)], 1, now)
    assert flight.drafts[:3] == [10, 11, 12]
    assert list(flight.found) == [found] * len(flight.drafts)
