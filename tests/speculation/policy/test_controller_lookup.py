"""Where asking the draft model does not pay, drafts are looked up in the text; where it does, nothing changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.scripted import Script
from speculation.drafts.acceptance_model import AcceptanceModel
from speculation.drafts.committed_text import CommittedText
from speculation.drafts.ngram import NgramIndex
from speculation.drafts.tree import Prediction, TreeNode
from speculation.policy.controller import SpeculationController
from speculation.policy.schedule import LOCKSTEP, Mechanisms
from speculation.policy.timing import LatencyModel
from tests.speculation.policy.virtual_pair import Knowing, run

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


def test_a_model_that_pays_is_not_asked_for_what_the_text_says_better() -> None:
    assert rate(REPEATS, 0.6, 8.0, lookup=True) > 1.3 * rate(REPEATS, 0.6, 8.0, lookup=False)


def _controller(tokens: list[int], lookup: NgramIndex | None) -> SpeculationController:
    times = LatencyModel([40.0, 40.5, 41.0])
    times.exchanged(10.0, 0.0, 0.0)
    times.drafted(1, 1.0)
    return SpeculationController(tokens, 1000, frozenset(), times, max_drafts=64, lookup=lookup)


def test_a_guess_says_which_of_its_drafts_were_looked_up() -> None:
    for lookup in (NgramIndex(), None):
        controller, now = _controller([*range(10, 30)] * 4, lookup), 0.0
        while (in_flight_draft := controller.next_guess(now)) is None:
            assert controller.next_step(now) is not None
            now += 1.0
            controller.drafted([Prediction(10 + len(controller.text.tree.main()), 0.95)], 1, now)
        assert in_flight_draft.drafts[:3] == [10, 11, 12]
        assert list(in_flight_draft.found) == [lookup is not None] * len(in_flight_draft.drafts)


def test_while_the_model_reads_a_prompt_drafts_are_looked_up() -> None:
    controller = _controller(
        [*range(1, 9), 30, 31, 32, 1, 2], NgramIndex()
    )  # a short match, which a model would know better
    step = controller.next_step(0.0)
    assert step is not None and step.tails == [[]]
    assert controller.next_guess(41.0) is None
    in_flight_draft = next(filter(None, map(controller.next_guess, range(42, 82))))
    assert in_flight_draft.drafts == [3, 4, 5] and all(in_flight_draft.found)
    controller.drafted([Prediction(99, 0.9)], 13, 82.0)
    assert [node.token for node in controller.text.tree.main()[:2]] == [3, 4], "what is on its way is not drafted anew"
    assert [child.token for child in controller.text.tree.root.children or ()] == [3, 99]


@pytest.mark.parametrize("width", [1, 6])
def test_a_path_that_is_longer_than_a_guess_may_be_is_sent_in_part(width: int) -> None:
    """A draft of the model behind a path that was looked up meanwhile: nobody may wait for the other then."""
    script = Script(seed=3, support=3)
    world = {"rtt": 0.6, "draft": 0.5, "wider": 3.0, "uneven": 0.3, "step": 30.0}
    run(Knowing(0.7, width=width, script=script), Mechanisms(), script=script, lookup=True, **world)  # type: ignore[arg-type]


@settings(max_examples=25)
@given(
    rtt=st.sampled_from([0.2, 5.0, 40.0]),
    draft=st.sampled_from([0.5, 4.0, 30.0, 200.0]),
    right=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    wider=st.sampled_from([0.0, 0.3, 8.0]),
    uneven=st.sampled_from([0.0, 0.5]),
    mechanisms=st.sampled_from([Mechanisms(), Mechanisms(self_continue=False), LOCKSTEP]),
)
def test_whatever_the_times_are_the_text_comes_to_its_end(mechanisms: Mechanisms, right: float, **world: float) -> None:
    run(Knowing(right, width=3, script=REPEATS), mechanisms, script=REPEATS, lookup=True, step=30.0, **world)  # type: ignore[arg-type]


def test_a_model_loses_its_credit_by_drafts_that_fall() -> None:
    acceptance_model = AcceptanceModel()
    assert acceptance_model.at_best(0.0) > 0.95
    chances = []
    for stood in (False,) * 6:
        acceptance_model.learn(TreeNode(1, 0.9, None), stood)
        acceptance_model.fit()
        chances.append(acceptance_model.at_best(acceptance_model.recent))
    assert chances == sorted(chances, reverse=True) and chances[-1] < 0.5


def test_looking_up_again_in_the_same_state_adds_nothing() -> None:
    text = CommittedText([*range(10, 30)] * 3, frozenset(), NgramIndex())
    for _ in range(8):  # rejections lower the chances, so that the path ends before its greatest depth
        text.look_up(1, (), always=True)
        text.commit([99])
        text.learn()
    text.commit([10, 11, 12])
    assert text.look_up(64, (), always=True)
    found = [node.token for node in text.tree.main()]
    assert 0 < len(found) < 64
    assert not text.look_up(64, (), always=True)
    assert [node.token for node in text.tree.main()] == found
