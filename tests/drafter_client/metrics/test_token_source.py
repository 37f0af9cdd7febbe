"""Token sources: provisional when a token is committed, and final with the response or the event stream."""

import pytest

from drafter_client.metrics.token_source import SourceChange, TokenSource, TokenSources, first_sources
from speculation.policy.verifier_timeline import InFlightDraft

ACCEPTED, RECOVERED, BONUS, TARGET_DECODED = TokenSource


class World:
    """The token sources of a text whose first ten tokens are known."""

    def __init__(self, accepts: bool = True) -> None:
        self.text = [0] * 10
        self.in_flight: list[InFlightDraft] = []
        self.sources = TokenSources(self.text, self.in_flight, accepts)

    def draft(self, *drafts: int, position: int = 10) -> InFlightDraft:
        draft = InFlightDraft(position, list(drafts), 0.0, 0.0)
        self.in_flight.append(draft)
        return draft

    def answered(self, draft: InFlightDraft, recorded: int, accepted: int, end: int) -> list[SourceChange]:
        self.in_flight.remove(draft)
        return self.sources.answered(draft, recorded, accepted, end)

    def commit(self, *tokens: int) -> list[TokenSource]:
        """Append tokens to the text; return their provisional sources."""
        start = len(self.text)
        self.text += tokens
        return self.sources.provisional(start, len(tokens))


@pytest.mark.parametrize(
    ("tokens", "accepted", "sources"),
    [
        ([1, 2, 3, 4], 3, [ACCEPTED, ACCEPTED, ACCEPTED, BONUS]),
        ([1, 9], 1, [ACCEPTED, RECOVERED]),
        ([9], 0, [RECOVERED]),
        ([1, 2, 3], 3, [ACCEPTED, ACCEPTED, ACCEPTED]),  # the last draft token has ended the text
    ],
)
def test_response_decides_the_sources_of_its_pass(tokens: list[int], accepted: int, sources: list[TokenSource]) -> None:
    by_response, by_stream = World(), World()
    assert by_response.answered(by_response.draft(1, 2, 3), 10, accepted, 10 + len(tokens)) == []
    assert by_response.commit(*tokens) == sources
    assert not by_response.sources.awaits_responses and by_response.sources.close() == []

    draft = by_stream.draft(1, 2, 3)
    assert by_stream.commit(*tokens) == sources
    assert by_stream.sources.awaits_responses
    assert by_stream.answered(draft, 10, accepted, 10 + len(tokens)) == []
    assert not by_stream.sources.awaits_responses and by_stream.sources.close() == []


def test_recovered_token_may_equal_the_rejected_draft_token() -> None:
    """Under the strategy `threshold`."""
    world = World()
    world.answered(world.draft(1, 2, 3), 10, 1, 12)
    assert world.commit(1, 2) == [ACCEPTED, RECOVERED]


def test_token_of_an_empty_draft_is_a_bonus_token() -> None:
    world = World()
    world.answered(world.draft(), 10, 0, 11)
    assert world.commit(5) == [BONUS]


def test_self_continued_tokens_are_target_decoded() -> None:
    world = World()
    world.sources.target_decoded(10, 2)
    assert world.commit(5, 6) == [TARGET_DECODED, TARGET_DECODED]
    draft = world.draft(7, 8, position=12)
    world.answered(world.draft(7, position=12), 14, 0, 14)  # stale: its response reports both tokens all the same
    assert world.commit(7, 8) == [ACCEPTED, ACCEPTED]
    assert world.sources.awaits_responses, "the other draft may have brought them, as far as is known"
    assert world.sources.target_decoded(12, 2) == [
        SourceChange(12, ACCEPTED, TARGET_DECODED),
        SourceChange(13, ACCEPTED, TARGET_DECODED),
    ]
    assert not world.sources.awaits_responses
    assert world.answered(draft, 14, 0, 15) == []
    assert world.commit(9) == [BONUS], "its draft tokens were committed already, so the pass was a plain step"


def test_token_that_no_draft_in_flight_explains_is_target_decoded() -> None:
    world = World()
    one, two = world.draft(1, 2), world.draft(1, 2, 3)
    world.answered(one, 10, 0, 11)
    assert world.commit(9) == [RECOVERED]
    world.answered(two, 12, 0, 12)  # stale
    assert world.commit(2) == [TARGET_DECODED]
    assert not world.sources.awaits_responses
    assert world.sources.close() == []


def test_absorbed_draft_gets_provisional_sources_of_the_longer_draft() -> None:
    world = World()
    one, two = world.draft(1, 2), world.draft(1, 2, 3, 4)
    world.answered(one, 14, 0, 14)
    assert world.commit(1, 2, 3, 9) == [ACCEPTED, ACCEPTED, ACCEPTED, RECOVERED]
    assert world.sources.awaits_responses
    assert world.answered(two, 10, 3, 14) == []
    assert not world.sources.awaits_responses


def test_response_changes_provisional_sources() -> None:
    """Two drafts were verified in one pass, and the stream reported its tokens first."""
    world = World()
    one, two = world.draft(1), world.draft(1, 2, 3)
    assert world.commit(1, 2, 3, 4) == [ACCEPTED, BONUS, ACCEPTED, BONUS]
    assert world.answered(one, 14, 0, 14) == []
    assert world.answered(two, 10, 3, 14) == [SourceChange(11, BONUS, ACCEPTED)]


def test_contradicted_draft_is_not_waited_for() -> None:
    world = World()
    world.draft(1, 2, 3)
    world.sources.target_decoded(10, 1)
    assert world.commit(9, 5) == [TARGET_DECODED, TARGET_DECODED]
    assert not world.sources.awaits_responses, "the text differs from the draft"
    assert world.sources.close() == []


def test_tokens_of_a_lost_response_count_as_target_decoded() -> None:
    world = World()
    world.draft(1, 2)
    assert world.commit(1, 9) == [ACCEPTED, RECOVERED]
    assert world.sources.awaits_responses
    assert world.sources.close() == [
        SourceChange(10, ACCEPTED, TARGET_DECODED),
        SourceChange(11, RECOVERED, TARGET_DECODED),
    ]


def test_strategy_that_never_accepts_has_no_accepted_tokens() -> None:
    world = World(accepts=False)
    draft = world.draft(1, 2)
    assert world.commit(1) == [RECOVERED]
    assert world.answered(draft, 10, 0, 11) == []


def test_first_sources_are_one_bonus_then_target_decoded() -> None:
    assert first_sources(1) == [BONUS]
    assert first_sources(3) == [BONUS, TARGET_DECODED, TARGET_DECODED]
