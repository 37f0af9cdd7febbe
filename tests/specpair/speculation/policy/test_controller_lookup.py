"""Draft tokens are looked up in the text where the draft model does not pay; where it pays, nothing changes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script
from specpair.speculation.drafts.acceptance_model import AcceptanceModel
from specpair.speculation.drafts.committed_text import CommittedText
from specpair.speculation.drafts.lookups import Lookups
from specpair.speculation.drafts.tree import Proposal, TreeNode
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.policy.timing import LatencyModel
from tests.examples import examples
from tests.specpair.speculation.policy.virtual_pair import LENGTH, Knowing, run

REPEATS = Script(seed=3, support=2)  # so few different continuations that the text soon repeats itself
NEVER = Script()  # hardly ever repeats itself


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


def test_a_draft_model_that_the_verifier_outpaces_does_not_hold_lookups_back() -> None:
    """Its tokens come too late wherever it drafts, and only now and then it is seen whether that is still so."""
    assert rate(REPEATS, 0.9, 0.05, lookup=True) > 0.95 * rate(REPEATS, 0.0, 4.0, lookup=True)
    steps = run(Knowing(0.9), Mechanisms(), rtt=0.01, step=0.04, draft=0.05).course.steps
    assert 2 < steps < LENGTH / 6


def test_lookup_replaces_a_useless_draft_model_in_repetitive_text() -> None:
    assert rate(REPEATS, 0.0, 0.004, lookup=True) > 1.8 * rate(REPEATS, 0.0, 0.004, lookup=False)


def test_lookup_costs_nothing_in_text_without_repetition() -> None:
    for right, draft in ((0.9, 0.4), (0.0, 0.004), (0.9, 0.004)):
        assert rate(NEVER, right, draft, lookup=True) > 0.97 * rate(NEVER, right, draft, lookup=False)


def test_good_draft_model_keeps_drafting() -> None:
    assert rate(REPEATS, 0.95, 0.002, lookup=True) > 0.95 * rate(REPEATS, 0.95, 0.002, lookup=False)


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


@pytest.mark.parametrize("width", [1, 6])
def test_path_longer_than_the_limit_is_sent_in_part(width: int) -> None:
    """A model's token behind a path that was looked up meanwhile must not make both ends wait for each other."""
    script = Script(seed=3, support=3)
    world: dict[str, Any] = {"rtt": 0.0006, "draft": 0.0005, "wider": 0.003, "uneven": 0.3, "step": 0.03}
    run(Knowing(0.7, width=width, script=script), Mechanisms(), script=script, lookup=True, **world)


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


def test_rejections_lower_the_optimistic_chance_of_the_model() -> None:
    acceptance_model = AcceptanceModel()
    assert acceptance_model.optimistic_chance(0.0) > 0.95
    chances = []
    for accepted in (False,) * 6:
        acceptance_model.learn(TreeNode(1, 0.9, None), accepted)
        acceptance_model.fit()
        chances.append(acceptance_model.optimistic_chance(acceptance_model.recent))
    assert chances == sorted(chances, reverse=True) and chances[-1] < 0.5


def test_second_look_up_in_the_same_state_adds_nothing() -> None:
    text = CommittedText([*range(10, 30)] * 3, frozenset(), Lookups(in_text=True))
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
