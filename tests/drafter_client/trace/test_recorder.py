"""Recorder: its records add up with the statistics of the run, for any responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.events import (
    Answered,
    Began,
    Committed,
    Drafted,
    Sent,
    Streamed,
    to_all,
)
from drafter_client.statistics import Stats
from drafter_client.trace.recorder import Recorder
from specpair.drafters.base import Expansion
from specpair.protocol.responses import VerifyResponse
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.token_details import TokenDetails
from specpair.speculation.acceptance.token_source import TokenSource, split
from specpair.speculation.draft import Draft, DraftSource, DraftToken
from specpair.speculation.drafts.tree import Proposal
from specpair.speculation.policy.schedule import Schedule
from specpair.speculation.policy.verifier_timeline import InFlightDraft
from tests.drafter_client.http.bodies import verified

SECONDS = st.floats(0.0, 10.0)
MS = st.floats(0.0, 1e4)


def _draft(found: list[bool]) -> Draft:
    """A draft; `found`: which of its tokens are looked up."""
    sources = [DraftSource.LOOKUP if each else DraftSource.MODEL for each in found]
    return Draft(10, tuple(DraftToken(7, 0.5, source) for source in sources))


@st.composite
def rounds(draw: st.DrawFn) -> list[tuple[InFlightDraft, VerifyResponse, float]]:
    """Verify requests with possible responses, and the time of arrival of each."""
    made = []
    for _ in range(draw(st.integers(0, 12))):
        found = draw(st.lists(st.booleans(), max_size=8))
        count = len(found)
        judged = draw(st.integers(0, count))
        accepted = draw(st.integers(0, judged))
        sent = draw(SECONDS)
        in_flight_draft = InFlightDraft(_draft(found), sent)
        response = verified(
            [7] * (accepted + 1), accepted, judged, queue_ms=draw(MS), forward_ms=draw(st.just(0.0) | MS)
        )
        made.append((in_flight_draft, response, sent + draw(SECONDS)))
    return made


@given(rounds(), st.randoms(use_true_random=False), st.lists(SECONDS, max_size=5))
def test_records_add_up_with_the_statistics(answers: list, random: object, steps: list[float]) -> None:  # type: ignore[type-arg]
    stats, recorder = Stats(), Recorder()
    tell = to_all(StatsCounter(stats).take, recorder.take)
    tell(Began(10), 0.0)
    for took in steps:
        tell(Drafted(Expansion([Proposal(7, 0.5)], 1), took=took), 2 * took)
    for in_flight_draft, _, _ in answers:
        tell(Sent(in_flight_draft, Schedule.OVERLAPPED), in_flight_draft.sent_at)
    random.shuffle(answers)  # type: ignore[attr-defined]
    for in_flight_draft, response, now in answers:
        tell(Answered(in_flight_draft, response), now)
        if (ran := response.round) is not None:
            judged = JudgedRound(ran.judged, ran.accepted, in_flight_draft.draft.tokens[: ran.judged], in_flight_draft)
            tell(Committed(10, [], rounds=[judged]), now)
    rows = recorder.rounds()
    assert sum(row["ran"] for row in rows) == stats.rounds
    assert len(rows) == stats.drafts_sent
    assert sum(row["judged"] for row in rows) == stats.drafted
    assert sum(row["accepted"] for row in rows) == stats.accepted
    assert sum(row["looked_up"] for row in rows) == stats.looked_up
    assert sum(row["network_ms"] for row in rows) == pytest.approx(1e3 * stats.times.network, abs=0.01)
    assert sum(row["queue_ms"] for row in rows) == pytest.approx(1e3 * stats.times.queue, abs=0.01)
    assert sum(row["forward_ms"] for row in rows) == pytest.approx(1e3 * stats.times.verify, abs=0.01)
    # All steps ended before the first request was sent.
    assert [row["draft_ms"] for row in rows] == pytest.approx(
        [1e3 * sum(steps), *[0.0] * len(rows)][: len(rows)], abs=0.01
    )
    assert sum(step["ended_ms"] - step["began_ms"] for step in recorder.steps()) == pytest.approx(
        1e3 * sum(steps), abs=0.01
    )


def test_times_count_from_the_begin_of_the_run() -> None:
    recorder = Recorder()
    tell = recorder.take
    tell(Began(9), 1.0)
    tell(Began(9), 1.015)  # another stretch of the text
    tell(Committed(9, [(4, TokenSource.BONUS)]), 1.005)
    tell(Drafted(Expansion([Proposal(5, 0.5), Proposal(6, 0.2)], 4), took=0.003), 1.008)
    draft = Draft(10, (DraftToken(5, 0.5), DraftToken(6, 0.25, DraftSource.LOOKUP)))
    in_flight_draft = InFlightDraft(draft, 1.01)
    tell(Sent(in_flight_draft, Schedule.LOCKSTEP), 1.01)
    tell(Answered(in_flight_draft, verified([5, 9], 1, 2, queue_ms=4.0, forward_ms=6.0)), 1.03)
    judged = JudgedRound(2, 1, draft.tokens, in_flight_draft)
    tell(Committed(10, [(5, TokenSource.ACCEPTED), (9, TokenSource.RECOVERED)], rounds=[judged]), 1.03)
    tell(Streamed(12, [8], TokenDetails(split("t")), None, 0.005), 1.044)
    tell(Committed(12, [(8, TokenSource.TARGET_DECODED)]), 1.044)
    assert recorder.prefills() == []
    assert recorder.steps() == [{"began_ms": 5.0, "ended_ms": 8.0, "read": 4, "width": 2, "drafts": [5, 6]}]
    assert recorder.rounds() == [
        {
            "round": 1,
            "schedule": "lockstep",
            "position": 10,
            "k": 2,
            "judged": 2,
            "accepted": 1,
            "ran": True,
            "looked_up": 1,
            "confidence_mean": 0.375,
            "confidence_min": 0.25,
            "draft_ms": 3.0,
            "sent_ms": 10.0,
            "rtt_ms": 20.0,
            "network_ms": 10.0,
            "queue_ms": 4.0,
            "forward_ms": 6.0,
            "arrived_ms": 30.0,
            "committed": 2,
            "drafts": [5, 6],
            "confidence": [0.5, 0.25],
            "from_lookup": [False, True],
        }
    ]
    tokens = recorder.tokens()
    drafts = [tuple(each.pop(name) for name in ("round", "draft", "draft_source", "confidence")) for each in tokens]
    assert drafts == [(None,) * 4, (1, 5, "model", 0.5), (1, 6, "lookup", 0.25), (None,) * 4]
    assert tokens == [
        {"position": 9, "token": 4, "source": "bonus", "target_decoded": False, "committed_ms": 5.0},
        {"position": 10, "token": 5, "source": "accepted", "target_decoded": False, "committed_ms": 30.0},
        {"position": 11, "token": 9, "source": "recovered", "target_decoded": False, "committed_ms": 30.0},
        {"position": 12, "token": 8, "source": "target_decoded", "target_decoded": True, "committed_ms": 44.0},
    ]
    assert recorder.self_continuation_passes() == [{"forward_ms": 5.0, "arrived_ms": 44.0}]
