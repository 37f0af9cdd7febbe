"""Counts of judged draft tokens: by round, by position in the draft, and by what the tokens come from."""

from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.acceptance.round_counts import JudgedRound, RoundCounts, draft_sources
from specpair.speculation.acceptance.token_source import TokenSource
from specpair.speculation.draft import DraftSource, DraftToken

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
