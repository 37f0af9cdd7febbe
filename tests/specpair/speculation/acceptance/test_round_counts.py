"""Counts of judged draft tokens: by round, by position in the draft, and by what the tokens come from."""

from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.acceptance.round_counts import JudgedRound, RoundCounts, draft_sources
from specpair.speculation.acceptance.token_details import TokenSource
from specpair.speculation.draft import Draft, DraftSource, DraftToken

M, L, P = DraftSource.MODEL, DraftSource.LOOKUP, DraftSource.PREDICTION


def _round(sources: list[DraftSource], accepted: int) -> JudgedRound:
    return JudgedRound(len(sources), accepted, tuple(DraftToken(5, source=source) for source in sources))


def test_rounds_are_counted() -> None:
    empty, counts = RoundCounts(), RoundCounts()
    assert empty.acceptance_rate is None and empty.mean_acceptance_length is None
    assert empty.acceptance_histogram == [0]
    for each in (_round([M, L, P], 2), _round([P, P], 1), JudgedRound(0, 0), JudgedRound(2, 0)):
        counts.count(each)
    assert (counts.rounds, counts.drafted, counts.accepted, counts.drafts_judged) == (4, 7, 3, 3)
    assert counts.accepted_per_position == [2, 1]
    assert counts.longest_draft == 3 and counts.acceptance_histogram == [1, 1, 1, 0]
    assert (counts.looked_up, counts.looked_up_accepted) == (4, 2)
    assert (counts.prediction_accepted, counts.prediction_rejected) == (1, 2)
    assert (counts.acceptance_rate, counts.mean_acceptance_length) == (3 / 7, 1.75)


@given(
    st.lists(
        st.lists(st.sampled_from([M, L, P]), max_size=6).flatmap(
            lambda sources: st.tuples(st.just(sources), st.integers(0, len(sources)))
        )
    )
)
def test_counts_add_up(rounds: list[tuple[list[DraftSource], int]]) -> None:
    counts = RoundCounts()
    for sources, accepted in rounds:
        counts.count(_round(sources, accepted))
    assert sum(counts.accepted_per_position) == counts.accepted <= counts.drafted
    assert counts.accepted_per_position == sorted(counts.accepted_per_position, reverse=True)
    assert counts.prediction_accepted <= counts.looked_up_accepted <= counts.accepted
    histogram = counts.acceptance_histogram
    assert histogram == [
        sum(bool(sources) and accepted == length for sources, accepted in rounds)
        for length in range(max([0, *(len(sources) for sources, _ in rounds)]) + 1)
    ]


def test_each_token_has_the_source_of_the_draft_token_at_its_place() -> None:
    accepted, recovered, bonus, forced = (
        TokenSource.ACCEPTED,
        TokenSource.RECOVERED,
        TokenSource.BONUS,
        TokenSource.FORCED,
    )
    rounds = [_round([M, L, P], 2), _round([], 0), _round([L], 1), JudgedRound(2, 1)]
    sources = [accepted, accepted, recovered, bonus, accepted, forced, bonus, accepted, recovered]
    assert draft_sources(sources, rounds) == [M, L, P, None, L, None, None, None, None]
    assert draft_sources([recovered, accepted], rounds) == [None, None], "they are of other rounds"
    assert draft_sources([accepted], []) == [None]


def test_a_round_of_a_tree_counts_its_nodes_and_knows_which_were_accepted() -> None:
    """Accepted: the second of two siblings, and one behind it."""
    tree = Draft(
        3, tuple(DraftToken(*each) for each in ((7, 1.0, M), (8, 1.0, L, None, 2), (9, 1.0, P), (5, 1.0, M, None, 2)))
    )
    ended, replaced = JudgedRound.of(tree, [1, 3]), JudgedRound.of(tree, [1])
    assert [each.token for each in ended.tokens] == [8, 5, 7, 9] and ended.bonus
    assert [each.token for each in replaced.tokens] == [8, 9, 7, 5] and not replaced.bonus
    counts = RoundCounts()
    for each in (ended, replaced):
        counts.count(each)
    assert (counts.drafted, counts.accepted, counts.accepted_per_position) == (8, 3, [2, 1])
    assert (counts.looked_up_accepted, counts.prediction_rejected) == (2, 2)
    accepted, recovered, bonus = TokenSource.ACCEPTED, TokenSource.RECOVERED, TokenSource.BONUS
    sources = [accepted, accepted, bonus, accepted, recovered]
    assert draft_sources(sources, [ended, replaced]) == [L, M, None, L, P]


def test_a_round_of_a_chain_is_that_of_a_tree() -> None:
    chain = Draft.chain(3, [5, 6, 7])
    for accepted in range(4):
        assert JudgedRound.of(chain, range(accepted)) == JudgedRound(3, accepted, chain.tokens)
