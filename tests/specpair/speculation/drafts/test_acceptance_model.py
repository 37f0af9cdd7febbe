"""The chance of acceptance is learnt from the outcomes at similar confidence and from the last outcomes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafts.acceptance_model import Calibration, RunnersUp, recent_after
from specpair.speculation.drafts.tree import TreeNode

CONFIDENCE = st.floats(0.0, 1.0)
NODE = st.builds(TreeNode, st.just(1), CONFIDENCE, st.none(), second_opinion=st.floats(-1.0, 1.0))
OUTCOMES = st.lists(st.tuples(CONFIDENCE, st.booleans()), max_size=60)


def _taught(outcomes: list[tuple[float, bool]]) -> Calibration:
    calibration = Calibration()
    for number, (confidence, accepted) in enumerate(outcomes):
        calibration.learn(confidence, accepted)
        if number % 3 == 2:
            calibration.fit()
    calibration.fit()
    return calibration


def _drawn(seed: int, count: int, *chances: tuple[float, float]) -> list[tuple[float, bool]]:
    """Random outcomes of draft tokens of several kinds, each a pair of confidence and chance of acceptance."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, len(chances), count)
    return [
        (chances[kind][0], bool(luck < chances[kind][1])) for kind, luck in zip(kinds, rng.random(count), strict=True)
    ]


@pytest.mark.parametrize("confidences", [(0.9, 0.3), (0.99, 0.9), (0.3, 0.1), (0.3, 0.9)], ids=str)
def test_chance_follows_the_outcomes_at_each_confidence(confidences: tuple[float, float]) -> None:
    calibration = _taught(_drawn(0, 400, (confidences[0], 0.9), (confidences[1], 0.2)))
    typical_run = 2 * 0.55 - 1.0
    assert calibration.chance(confidences[0], typical_run) == pytest.approx(0.9, abs=0.12)
    assert calibration.chance(confidences[1], typical_run) == pytest.approx(0.2, abs=0.15)


def test_chance_depends_on_the_last_outcome_where_outcomes_come_in_runs() -> None:
    """Eight accepted tokens alternate with eight rejected ones."""
    runs = _taught([(0.5, number // 8 % 2 == 0) for number in range(200)])
    assert runs.chance(0.5, 1.0) > 0.7 > 0.3 > runs.chance(0.5, -1.0)


@given(outcomes=OUTCOMES, nodes=st.lists(NODE, max_size=6), ahead=st.integers(0, 4))
def test_path_chance_is_the_product_of_its_tokens_chances(
    outcomes: list[tuple[float, bool]], nodes: list[TreeNode], ahead: int
) -> None:
    calibration = _taught(outcomes)
    path = calibration.path(nodes, ahead)
    assert len(path) == len(nodes) + ahead
    chance, recent = 1.0, calibration.recent
    for found, node in zip(path, nodes, strict=False):
        chance *= calibration.chance(node.confidence, recent, node.second_opinion)
        recent = recent_after(recent, True)
        assert found == pytest.approx(chance)
    assert all(0.0 <= after <= before <= 1.0 for before, after in zip([1.0, *path], path, strict=False))


@given(outcomes=OUTCOMES)
def test_chances_are_probabilities_after_any_outcomes(outcomes: list[tuple[float, bool]]) -> None:
    calibration = _taught(outcomes)
    assert 0.0 < calibration.typical < 1.0 and -1.0 <= calibration.recent <= 1.0
    for confidence in (0.0, 1e-9, 0.5, 1.0):
        assert all(0.0 <= calibration.chance(confidence, recent) <= 1.0 for recent in (-1.0, 0.0, 1.0))


WRONG, RIGHT = 1, 2


def _children(*parts: float | None) -> list[TreeNode]:
    """A first choice, and further ones with tokens from `RIGHT` on."""
    first = TreeNode(WRONG, 0.5, None)
    return [first, *(TreeNode(RIGHT + rank, 0.1, None, part=part) for rank, part in enumerate(parts))]


@given(st.lists(st.none() | st.floats(0.0, 1.0), max_size=5))
def test_chances_are_those_of_one_choice_among_several(parts: list[float | None]) -> None:
    chances = RunnersUp().chances(_children(*parts))
    assert len(chances) == min(len(parts), 5) and all(0.0 <= each <= 1.0 for each in chances)
    assert sum(chances) <= 1.0 + 1e-9


def test_what_the_drafter_thinks_more_of_is_likelier_and_counts_more_than_the_rank() -> None:
    model = RunnersUp()
    assert model.chances(_children(0.9)) > model.chances(_children(0.3)) > model.chances(_children(0.01))
    low, high = model.chances(_children(0.1, 0.8))
    assert low < high
