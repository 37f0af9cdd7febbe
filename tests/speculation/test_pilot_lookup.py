"""Where asking the draft model does not pay, drafts are looked up in the text; where it does, nothing changes."""

import pytest

from backends.scripted import Script
from speculation.operation import LOCKSTEP, Mechanisms
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
