"""Rounds find the draft that they judged, whichever answer brings their tokens."""

from specpair.drafters.run.reactor import JudgedRounds
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.token_details import split
from specpair.speculation.draft import Draft
from specpair.speculation.policy.verifier_timeline import InFlightDraft

TEXT = [*range(10, 20), 1, 2, 3, 4, 5, 6]


def sent(at: float, position: int, *ids: int) -> InFlightDraft:
    return InFlightDraft(Draft.chain(position, ids), at)


def test_an_answer_that_overtook_another_leaves_it_its_round() -> None:
    rounds = JudgedRounds()
    first, second, third = sent(1.0, 10, 1), sent(2.0, 10, 1, 2, 3), sent(3.0, 11, 2, 3, 4, 5)
    assert list(rounds.of(split("abab"), 10, TEXT[:14], [second, first, third])) == [
        JudgedRound(1, 1, first.draft.tokens, first),
        JudgedRound(1, 1, second.draft.tokens[2:], second),
    ]
    assert list(rounds.of(split("ab"), 14, TEXT, [third, first])) == [JudgedRound(1, 1, third.draft.tokens[3:], third)]


def test_a_draft_judged_in_part_is_found() -> None:
    draft = sent(1.0, 10, 1, 2, 9, 9)
    assert list(JudgedRounds().of(split("ar"), 10, TEXT[:12], [draft])) == [
        JudgedRound(2, 1, draft.draft.tokens[:2], draft)
    ]


def test_a_round_of_no_known_draft_is_told_without() -> None:
    assert list(JudgedRounds().of(split("ab"), 10, TEXT[:12], [sent(1.0, 10, 7)])) == [JudgedRound(1, 1)]
