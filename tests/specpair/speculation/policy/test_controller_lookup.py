"""Draft tokens are looked up in the text where the draft model does not pay; where it pays, nothing changes."""

import random
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script
from specpair.speculation.draft import DraftSource
from specpair.speculation.drafts.acceptance_model import AcceptanceModel
from specpair.speculation.drafts.lookups import Lookups
from specpair.speculation.drafts.tree import Proposal
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.policy.timing import LatencyModel
from tests.examples import examples
from tests.specpair.speculation.policy.virtual_pair import LENGTH, Knowing, run, text

REPEATS = Script(seed=3, support=2)  # so few different continuations that the text soon repeats itself


def rate(script: Script, right: float, draft: float, lookup: bool, mechanisms: Mechanisms = Mechanisms()) -> float:
    """Tokens per second with a target of 40 ms a step."""
    world: dict[str, Any] = {"rtt": 0.01, "step": 0.04, "wider": 0.0003, "draft": draft}
    return run(
        Knowing(right, script=script), mechanisms, script=script, lookup=lookup, **world
    ).course.tokens_per_second


@pytest.mark.parametrize("mechanisms", [Mechanisms(), Mechanisms(self_continue=False), LOCKSTEP], ids=str)
def test_lookup_replaces_a_slow_draft_model_in_repetitive_text(mechanisms: Mechanisms) -> None:
    target_alone = 1.0 / 0.04
    slow = rate(REPEATS, 0.9, 0.4, lookup=False, mechanisms=mechanisms)
    assert slow < 1.3 * target_alone
    assert rate(REPEATS, 0.9, 0.4, lookup=True, mechanisms=mechanisms) > 1.8 * slow


def test_lookup_replaces_a_draft_model_where_it_is_likelier_right() -> None:
    assert rate(REPEATS, 0.6, 0.008, lookup=True) > 1.3 * rate(REPEATS, 0.6, 0.008, lookup=False)


def _controller(tokens: list[int], *, lookup: bool = True) -> SpeculationController:
    times = LatencyModel([0.04, 0.0405, 0.041])
    times.exchanged(0.01, 0.0, 0.0)
    times.drafted(1, 0.001)
    lookups = Lookups(in_text=lookup)
    return SpeculationController(
        tokens, 1000, frozenset(), Estimates(times, AcceptanceModel()), DraftLength(None, 64), lookups=lookups
    )


def test_in_flight_draft_marks_looked_up_tokens() -> None:
    for lookup in (True, False):
        controller, now = _controller([*range(10, 30)] * 4, lookup=lookup), 0.0
        while (in_flight_draft := controller.next_draft(now)) is None:
            assert controller.next_step(now) is not None
            now += 0.001
            controller.drafted([Proposal(10 + len(controller.text.tree.main()), 0.95)], 1, now)
        assert in_flight_draft.draft.ids[:3] == [10, 11, 12]
        assert all(each.source.looked_up is lookup for each in in_flight_draft.draft)


def test_drafts_are_looked_up_while_the_model_reads_a_prompt() -> None:
    text = [*range(1, 9), 30, 31, 32, 1, 2]  # a short match, which a draft model would beat
    controller = _controller(text)
    step = controller.next_step(0.0)
    assert step is not None and step.tails == [[]]
    assert controller.next_draft(0.041) is None
    in_flight_draft = next(filter(None, (controller.next_draft(now / 1e3) for now in range(42, 82))))
    assert in_flight_draft.draft.ids == [3, 4, 5] and all(each.source.looked_up for each in in_flight_draft.draft)
    controller.drafted([Proposal(99, 0.9)], 13, 0.082)
    assert [node.token for node in controller.text.tree.main()[:2]] == [3, 4], "tokens in flight are not replaced"
    assert [child.token for child in controller.text.tree.root.children or ()] == [3, 99]


@examples(20)
@given(
    rtt=st.sampled_from([0.0002, 0.005, 0.04]),
    draft=st.sampled_from([0.0005, 0.004, 0.03, 0.2]),
    right=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    wider=st.sampled_from([0.0, 0.0003, 0.008]),
    uneven=st.sampled_from([0.0, 0.5]),
    mechanisms=st.sampled_from([Mechanisms(), Mechanisms(self_continue=False), LOCKSTEP]),
)
def test_text_is_finished_under_any_times(mechanisms: Mechanisms, right: float, **world: Any) -> None:
    run(Knowing(right, width=3, script=REPEATS), mechanisms, script=REPEATS, lookup=True, step=0.03, **world)


TEXT = text()
ABSURD = [number % 256 for number in range(0, 3 * LENGTH, 3)]
DRAFTERS = {"none": (0.0, 5e-5), "useless": (0.0, 0.008), "good": (0.8, 0.008), "slow": (0.8, 0.2)}
EACH_DRAFTER = pytest.mark.parametrize(("right", "draft"), DRAFTERS.values(), ids=DRAFTERS)
EACH_SCHEDULE = pytest.mark.parametrize("mechanisms", [Mechanisms(), LOCKSTEP], ids=["overlapped", "lockstep"])


def edited(share: float, seed: int = 1) -> list[int]:
    """The text with so many of its tokens left out, replaced, or with others before them."""
    rng, tokens = random.Random(seed), list[int]()
    for token in TEXT:
        kind = rng.random() / share
        tokens += [] if kind < 0.33 else [7] if kind < 0.66 else [8, token] if kind < 1.0 else [token]
    return tokens


@cache
def course(
    right: float, draft: float, prediction: tuple[int, ...] | None, mechanisms: Mechanisms, wider: float = 0.0003
) -> Any:
    world: dict[str, Any] = {"rtt": 0.01, "step": 0.04, "wider": wider, "draft": draft}
    return run(Knowing(right), mechanisms, lookup=True, prediction=prediction, **world).course


@EACH_SCHEDULE
@EACH_DRAFTER
def test_a_right_prediction_is_sent_in_long_drafts(right: float, draft: float, mechanisms: Mechanisms) -> None:
    with_it, without = (course(right, draft, each, mechanisms) for each in (tuple(TEXT), None))
    assert with_it.tokens_per_second > 5.0 * without.tokens_per_second
    assert with_it.accepted / with_it.drafts_sent > 20.0, "longer than an automatic draft of a model"
    assert with_it.accepted == with_it.judged


@EACH_SCHEDULE
@EACH_DRAFTER
def test_an_edited_prediction_beats_the_draft_model(right: float, draft: float, mechanisms: Mechanisms) -> None:
    with_it, without = (course(right, draft, each, mechanisms) for each in (tuple(edited(0.05)), None))
    assert with_it.tokens_per_second > 1.5 * without.tokens_per_second


@examples(12)
@given(
    rtt=st.sampled_from([0.0002, 0.04]),
    draft=st.sampled_from([0.0005, 0.03]),
    right=st.sampled_from([0.0, 0.9]),
    wider=st.sampled_from([0.0, 0.008]),
    uneven=st.sampled_from([0.0, 0.5]),
    prediction=st.sampled_from([TEXT, edited(0.1), ABSURD, []]),
    length=st.sampled_from([None, 5]),
    mechanisms=st.sampled_from([Mechanisms(), Mechanisms(self_continue=False), LOCKSTEP]),
)
def test_a_predicted_text_is_finished_under_any_times(mechanisms: Mechanisms, right: float, **world: Any) -> None:
    run(Knowing(right, width=3), mechanisms, lookup=True, step=0.03, count=150, **world)


def _predicting(prediction: list[int], known: list[int], *, lookup: bool = True) -> SpeculationController:
    times = LatencyModel([0.04, 0.0401, 0.0402])
    times.exchanged(0.01, 0.0, 0.0)
    lookups = Lookups(2, in_text=lookup, prediction=prediction)
    return SpeculationController(
        known,
        1000,
        frozenset(),
        Estimates(times, AcceptanceModel()),
        DraftLength(None, 64),
        lookups=lookups,
        mechanisms=LOCKSTEP,
    )


def test_a_draft_says_which_tokens_are_from_the_prediction() -> None:
    controller = _predicting([*range(10, 60)], [1, 2, *range(10, 40)], lookup=False)
    controller.text.look_up(5, (), always=True)
    draft = next(filter(None, (controller.next_draft(now / 1e3) for now in range(50))))
    assert draft.draft.ids[:5] == [40, 41, 42, 43, 44]
    assert all(each.source is DraftSource.PREDICTION for each in draft.draft)
