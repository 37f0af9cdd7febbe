"""Which draft passes pay, for all texts of a round together."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.draft import DraftSource
from specpair.speculation.drafting.acceptance_model import AcceptanceModel
from specpair.speculation.drafting.committed_text import CommittedText
from specpair.speculation.drafting.tree import Proposal
from verifier_server.generation.pass_costs import PassCosts
from verifier_server.generation.round_policy import ChosenDrafts, RoundPolicy, RoundText

STEP = 0.1  # seconds of a pass of the target; a further token takes a hundredth of it
MODEL, HEAD = DraftSource.MODEL, DraftSource.HEAD
TIMES = [STEP * (1.0 + 0.01 * more) for more in range(17)]


def texts(
    *shares: float, source: DraftSource = MODEL, depths: Mapping[DraftSource, int] | None = None
) -> list[RoundText]:
    """A text for each of `shares`: how many of its draft tokens of `source` have been accepted, of one."""
    found = []
    for share in shares:
        acceptance = AcceptanceModel()
        committed = CommittedText([1, 2], {0}, acceptance=acceptance)
        for number in range(100):
            committed.grow(committed.tree.root, Proposal(5, 0.5), source)
            committed.commit([5 if number % 10 < 10 * share else 6])
        committed.learn()
        found.append(RoundText(committed, acceptance, 1000, 16, depths or {MODEL: 16}))
        found[-1].recent = acceptance.recent
        found[-1].look(0.0)
    return found


def policy(step: float, *, overlaps: bool = False) -> RoundPolicy:
    """`step`: of a draft pass, in passes of the target."""
    return RoundPolicy(PassCosts(TIMES, {MODEL: step * STEP}), overlaps)


def drafting(chosen: ChosenDrafts | None) -> list[RoundText]:
    """The texts of a draft pass; empty: there is none."""
    return [] if chosen is None else [*chosen.texts]


def test_a_draft_pass_is_for_the_texts_whose_draft_tokens_are_accepted() -> None:
    good, bad, other = given = texts(0.9, 0.1, 0.8)
    assert set(drafting(policy(0.1).before_target(given, [0, 0, 0]))) == {good, other}
    assert bad.drafts is False and good.drafts is True


def test_a_draft_pass_for_one_of_many_texts_keeps_all_of_them_waiting() -> None:
    one_of_many, all_of_many = texts(0.9, *[0.1] * 7), texts(*[0.9] * 8)
    assert drafting(policy(0.2).before_target(texts(0.9), [0])) != []
    assert drafting(policy(0.2).before_target(one_of_many, [0] * 8)) == []
    assert drafting(policy(0.1).before_target(all_of_many, [0] * 8)) == all_of_many


def test_a_draft_pass_that_takes_as_long_as_one_of_the_target_does_not_pay() -> None:
    assert drafting(policy(1.0).before_target(texts(0.9, 0.9), [0, 0])) == []


@pytest.mark.parametrize("overlaps", [False, True])
def test_beside_a_pass_of_the_target_is_drafted_if_that_slows_nothing(overlaps: bool) -> None:
    given = texts(0.9, 0.8)
    assert drafting(policy(0.2, overlaps=overlaps).during_target(given, 2, STEP)) == (given if overlaps else [])
    assert drafting(policy(0.2, overlaps=overlaps).during_target(given, 2, 0.05 * STEP)) == [], (
        "it would be over too late"
    )


def test_after_rounds_that_lost_nothing_is_drafted_for_longer_and_longer() -> None:
    lasting, given = policy(0.1), texts(0.9)

    def rests() -> int:
        """Loses until nothing is drafted; returns for how many rounds."""
        while lasting.before_target(given, [0]):
            lasting.over(1, 1, 2.0 * STEP, drafted=True)
        rounds = 0
        while not lasting.before_target(given, [0]):
            lasting.over(1, 1, STEP, drafted=False)
            rounds += 1
        return rounds

    first, second = rests(), rests()
    assert (first, second) == (32, 64)
    for _ in range(20):
        lasting.over(1, 3, 2.0 * STEP, drafted=True)
    assert rests() == 32, "what was gained counts"


SECONDS = st.floats(0.0, 1e3) | st.sampled_from([float("nan"), float("inf"), -1.0, 1e-300])


@given(
    times=st.lists(SECONDS, max_size=17),
    step=st.floats(0.0, 1e3),
    ran=st.lists(st.tuples(st.integers(1, 3000), st.floats(0.0, 1e3)), max_size=8),
    unread=st.integers(1, 5000),
    overlaps=st.booleans(),
)
def test_rounds_are_planned_by_any_times_that_were_measured(
    times: list[float], step: float, ran: list[tuple[int, float]], unread: int, overlaps: bool
) -> None:
    costs, given_texts = PassCosts(times, {MODEL: step}), texts(0.9, 0.1, 0.5)
    planned = RoundPolicy(costs, overlaps)
    for width, seconds in ran:
        costs.target_ran(width, seconds)
        costs.draft_ran(width, seconds, MODEL)
        planned.over(3, 4, seconds, drafted=True)
    found = [costs.target(width) for width in (1, 2, 8, 33, 34, 64, 2000, 10**5)]
    assert found == sorted(found) and found[0] > 0.0
    judged = planned.judged(given_texts)
    assert judged == [0, 0, 0], "nothing is drafted yet"
    assert set(drafting(planned.before_target(given_texts, judged))) <= set(given_texts)
    assert set(drafting(planned.during_target(given_texts, unread, found[0]))) <= set(given_texts)
    assert 0.0 <= planned.rate(given_texts) < float("inf")


BOTH = {HEAD: 3, MODEL: 16}


def test_the_source_that_gains_most_drafts() -> None:
    given_texts = texts(0.9, source=HEAD, depths=BOTH)
    for head, model, expected in ((0.01, 0.2, HEAD), (0.2, 0.01, MODEL)):
        costs = PassCosts(TIMES, {HEAD: head * STEP, MODEL: model * STEP})
        chosen = RoundPolicy(costs, False).before_target(given_texts, [0])
        assert chosen is not None and chosen.source is expected


def test_a_head_drafts_the_first_tokens_only_and_a_model_goes_on() -> None:
    (text,) = texts(0.9, source=HEAD, depths=BOTH)
    both = RoundPolicy(PassCosts(TIMES, {HEAD: 0.01 * STEP, MODEL: 0.02 * STEP}), False)
    sources = []
    for _ in range(5):
        text.look(0.0)
        chosen = both.before_target([text], [len(text.path)])
        assert chosen is not None
        sources.append(chosen.source)
        node = text.tip(chosen.source)
        assert node is not None
        text.grow(node, Proposal(5, 0.9), chosen.source)
    assert sources == [HEAD] * 3 + [MODEL] * 2
    assert text.tip(HEAD) is None


def test_a_head_is_not_asked_while_the_engine_has_gone_on() -> None:
    (text,) = texts(0.9, source=HEAD, depths={HEAD: 3})
    alone = RoundPolicy(PassCosts(TIMES, {HEAD: 0.01 * STEP}), False)
    text.ahead_of_us = True
    assert alone.before_target([text], [0]) is None
    text.commit(len(text.text.known), [7])
    assert alone.before_target([text], [0]) is not None


def test_a_head_that_does_not_pay_is_tried_now_and_then() -> None:
    (text,) = texts(0.0, source=HEAD, depths={HEAD: 3})
    alone = RoundPolicy(PassCosts(TIMES, {HEAD: 0.5 * STEP}), False)
    rounds = 0
    while not alone.trial_due([text]):
        assert alone.before_target([text], [0]) is None
        text.commit(len(text.text.known), [7])
        alone.over(1, 1, STEP, drafted=False)
        rounds += 1
        assert rounds < 1000
    assert rounds >= 50, "a hundredth of the time at most"
    assert alone.trial([text]) == ([text], HEAD, 1) and not alone.trial_due([text])


def test_a_source_that_seemed_worse_drafts_again_now_and_then() -> None:
    lasting, given = RoundPolicy(PassCosts(TIMES, {HEAD: 0.1 * STEP, MODEL: 0.1 * STEP}), False), texts(0.9)
    given[0].depths = {HEAD: 3, MODEL: 16}
    sources = []
    for _ in range(80):
        chosen = lasting.before_target(given, [0])
        sources.append(None if chosen is None else chosen.source)
        lasting.over(1, 3, STEP, drafted=True)
    assert 1 <= sources.count(HEAD) <= 3 and sources.count(MODEL) == 80 - sources.count(HEAD)


def test_a_model_that_would_read_for_long_is_not_tried_again() -> None:
    lasting = RoundPolicy(PassCosts(TIMES, {HEAD: 0.1 * STEP, MODEL: 0.2 * STEP}), False)
    (text,) = texts(0.9, source=HEAD, depths={HEAD: 3, MODEL: 16})
    assert text.text.untested == 0
    text.text.commit([7] * 800)
    text.look(0.0)
    for _ in range(100):
        chosen = lasting.before_target([text], [0])
        assert chosen is not None and chosen.source is HEAD
        lasting.over(1, 3, STEP, drafted=True)


def test_a_head_is_asked_for_as_many_tokens_as_pay() -> None:
    """A pass over two tokens takes longer than one over one, and as long as one over four."""
    (text,) = texts(0.9, source=HEAD, depths={HEAD: 3})
    steps = [STEP, *[1.9 * STEP] * 3, *[4.0 * STEP] * 13]
    alone = RoundPolicy(PassCosts(steps, {HEAD: 0.01 * STEP}), False)
    chosen = alone.before_target([text], [0])
    assert chosen is not None and chosen.steps == 3
