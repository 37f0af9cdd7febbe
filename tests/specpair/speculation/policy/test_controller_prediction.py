"""Drafts from a prediction of the output, in virtual time: long where it is right, none where it is wrong."""

import random
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.draft import DraftSource
from specpair.speculation.drafts.acceptance_model import AcceptanceModel
from specpair.speculation.drafts.lookups import Lookups
from specpair.speculation.drafts.tree import TreeNode
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.policy.timing import LatencyModel
from tests.examples import examples
from tests.specpair.speculation.policy.virtual_pair import LENGTH, Knowing, run, text

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
def test_a_wrong_prediction_costs_next_to_nothing(right: float, draft: float, mechanisms: Mechanisms) -> None:
    with_it, without = (course(right, draft, each, mechanisms, wider=0.004) for each in (tuple(ABSURD), None))
    assert with_it.tokens_per_second > 0.95 * without.tokens_per_second


@EACH_SCHEDULE
@EACH_DRAFTER
def test_an_edited_prediction_beats_the_draft_model(right: float, draft: float, mechanisms: Mechanisms) -> None:
    with_it, without = (course(right, draft, each, mechanisms) for each in (tuple(edited(0.05)), None))
    assert with_it.tokens_per_second > 1.5 * without.tokens_per_second


def test_fewer_draft_tokens_are_sent_where_the_verifier_pays_for_them() -> None:
    cheap, dear = (course(0.0, 5e-5, tuple(edited(0.1)), LOCKSTEP, wider) for wider in (0.0003, 0.016))
    assert dear.judged < 0.6 * cheap.judged


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
def test_text_is_finished_under_any_times(mechanisms: Mechanisms, right: float, **world: Any) -> None:
    run(Knowing(right, width=3), mechanisms, lookup=True, step=0.03, count=150, **world)


def _controller(prediction: list[int], known: list[int], *, lookup: bool = True) -> SpeculationController:
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
    controller = _controller([*range(10, 60)], [1, 2, *range(10, 40)], lookup=False)
    controller.text.look_up(5, (), always=True)
    draft = next(filter(None, (controller.next_draft(now / 1e3) for now in range(50))))
    assert draft.draft.ids[:5] == [40, 41, 42, 43, 44]
    assert all(each.source is DraftSource.PREDICTION for each in draft.draft)


def test_the_likelier_of_text_and_prediction_is_drafted() -> None:
    """The text repeats itself, and the prediction has been wrong so far; or only the prediction has a next token."""
    line = [*range(10, 30)]
    wrong = _controller([77] * 100, [1, 2, *line * 5])
    assert wrong.text.look_up(1, (), always=True)
    [node] = wrong.text.tree.main()
    assert (node.token, node.source) == (10, DraftSource.LOOKUP)
    right = _controller([*range(10, 60)], [1, 2, *range(10, 50)])
    assert right.text.look_up(1, (), always=True)
    [node] = right.text.tree.main()
    assert (node.token, node.source) == (50, DraftSource.PREDICTION)
    both = _controller([*line * 6], [1, 2, *line * 5])
    assert both.text.look_up(4, (), always=True)
    assert len(both.text.tree.main()) == 4
    assert all(node.source is DraftSource.PREDICTION for node in both.text.tree.main()), (
        "both have the token: it is the prediction's"
    )


def test_outcomes_of_predicted_tokens_teach_nothing_about_others() -> None:
    acceptance = AcceptanceModel()
    before = [acceptance.chance(TreeNode(1, 0.6, None, source=DraftSource.LOOKUP), 0.0)]
    before.append(acceptance.chance(TreeNode(1, 0.6, None), 0.0))
    predicted = TreeNode(1, 0.6, None, source=DraftSource.PREDICTION)
    first = acceptance.chance(predicted, 0.0)
    for _ in range(40):
        acceptance.learn(predicted, accepted=False)
    acceptance.fit()
    assert acceptance.chance(predicted, 0.0) < first / 3
    assert [
        acceptance.chance(TreeNode(1, 0.6, None, source=each), 0.0) for each in (DraftSource.LOOKUP, DraftSource.MODEL)
    ] == before
    assert acceptance.for_another_text().chance(predicted, 0.0) < first
