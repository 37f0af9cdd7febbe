"""What a text teaches is there for the next one of its kind; texts at the same time do not disturb each other."""

import pytest

from lab.simulator.virtual.drafter import VirtualDrafter
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.drafts.tree import TreeNode
from specpair.speculation.policy.experience import Estimates, Experience
from specpair.speculation.policy.schedule import LOCKSTEP
from specpair.speculation.text_options import TextSpec
from tests.specpair.speculation.policy.virtual_pair import Knowing, run

GREEDY = TextSpec(seed=1)
SAMPLED = TextSpec(seed=1, temperature=0.8)


def _warm(temperature: float) -> TextSpec:
    return TextSpec(temperature=temperature)


def _reject(estimates: Estimates, count: int = 20) -> None:
    for _ in range(count):
        estimates.acceptance.learn(TreeNode(1, 0.9, None), False)
    estimates.acceptance.fit()


def test_outcomes_are_kept_for_texts_of_the_same_kind() -> None:
    experience = Experience()
    with experience.text(GREEDY) as first:
        fresh = first.acceptance.model.typical
        _reject(first)
    with experience.text(SAMPLED) as other, experience.text(TextSpec(strategy=Strategy.GREEDY)) as another:
        assert another.acceptance.model.count == other.acceptance.model.count == 0
        assert other.acceptance.model.typical == fresh
    with experience.text(TextSpec(seed=2)) as second:
        assert second.acceptance.model.typical < fresh
        assert second.acceptance.model.count == 20
        assert second.acceptance.recent == 0.0, "the last outcomes were those of another text"


def test_the_last_outcomes_of_one_kind_of_token_are_forgotten_for_the_other_kind_too() -> None:
    experience = Experience()
    with experience.text(GREEDY) as first:
        _reject(first)
        assert first.acceptance.lookup.recent < -0.9
    with experience.text(GREEDY) as second:
        assert second.acceptance.lookup.recent == 0.0


def test_a_drafter_that_failed_is_tried_again_in_the_next_text() -> None:
    experience = Experience()
    with experience.text(GREEDY) as first:
        _reject(first, 40)
        assert first.acceptance.model.typical < 0.2
    with experience.text(GREEDY) as second:
        assert 0.3 < second.acceptance.model.typical < 0.5
        for _ in range(8):
            second.acceptance.learn(TreeNode(1, 0.9, None), True)
            second.acceptance.fit()
        assert second.acceptance.model.typical > 0.4, "the outcomes of this text count more than those of the first"


def test_passes_are_known_in_all_later_texts_and_the_rest_is_measured_again() -> None:
    experience = Experience()
    with experience.text(GREEDY, [0.03, 0.031]) as first:
        assert first.latencies.verify(0) == pytest.approx(0.03)
        first.latencies.drafted(1, 0.007)
        first.latencies.exchanged(0.09, 0.005, 0.05)
        first.latencies.verified(0, 0.05)
        first.latencies.queued(0.005)
        first.latencies.shared(2, 8)
        verify = first.latencies.verify(0)
    with experience.text(SAMPLED, [0.03, 0.031]) as second:
        assert second.latencies.verify(0) == verify
        assert not second.latencies.draft_known, "one that was measured too slow would never be measured again"
        assert second.latencies.link == second.latencies.queue == 0.0
        assert not second.latencies.is_shared


def test_texts_at_the_same_time_have_copies_and_the_one_that_ends_last_counts() -> None:
    experience = Experience()
    with experience.text(GREEDY) as outer:
        with experience.text(GREEDY) as inner:
            _reject(inner)
            assert outer.acceptance.model.typical > inner.acceptance.model.typical
        outer.latencies.verified(0, 0.007)
    with experience.text(GREEDY) as last:
        assert last.acceptance.model.typical == outer.acceptance.model.typical
        outer.latencies.verified(0, 0.7)
        assert last.latencies.verify(0) == 0.007


def test_texts_that_are_written_together_share_what_draft_tokens_show() -> None:
    experience = Experience()
    with experience.text(GREEDY, together=True) as first, experience.text(SAMPLED, together=True) as of_another_kind:
        with experience.text(TextSpec(seed=2), together=True) as second, experience.text(GREEDY) as alone:
            _reject(second)
        assert first.acceptance is second.acceptance
        assert first.acceptance.model.count == 20 and first.latencies is not second.latencies
        assert of_another_kind.acceptance.model.count == alone.acceptance.model.count == 0
    typical = first.acceptance.model.typical
    del first, second
    with experience.text(GREEDY, together=True) as later:
        assert later.acceptance.model.typical > typical, "it is tried again, as in any later text"


def test_a_text_that_fails_has_taught_something() -> None:
    experience = Experience()

    def fail() -> None:
        with experience.text(GREEDY) as first:
            _reject(first)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with experience.text(GREEDY) as second:
        assert second.acceptance.model.typical < 0.5


def test_kinds_that_were_not_used_for_long_are_forgotten() -> None:
    experience = Experience()
    for kind in range(17):
        with experience.text(_warm(kind)) as estimates:
            _reject(estimates)
        with experience.text(_warm(1)) as used:
            _reject(used, 1)
    with (
        experience.text(_warm(0)) as forgotten,
        experience.text(_warm(1)) as used,
        experience.text(_warm(16)) as latest,
    ):
        assert forgotten.acceptance.model.count == 0
        assert latest.acceptance.model.count == 20 < used.acceptance.model.count


def test_a_pair_wastes_fewer_draft_tokens_on_its_second_text() -> None:
    def judged(estimates: Estimates) -> VirtualDrafter:
        drafter = Knowing(0.3, width=1, seed=3)
        return run(drafter, LOCKSTEP, rtt=0.001, step=0.03, wider=0.006, draft=0.001, count=60, estimates=estimates)

    experience = Experience()
    with experience.text(GREEDY) as estimates:
        first = judged(estimates).course
    with experience.text(GREEDY) as estimates:
        second = judged(estimates).course
    assert second.judged - second.accepted < first.judged - first.accepted
    assert second.tokens_per_second > first.tokens_per_second
