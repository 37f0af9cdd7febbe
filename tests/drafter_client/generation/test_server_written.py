"""Texts generated on the verifier: timed on the drafter's clock, checked as they arrive, and compared as a baseline."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from drafter_client.errors import BadReply, ConnectionLost
from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.server_written import served
from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import ResponseBounds, TextSession
from drafter_client.statistics import Stats
from specpair.protocol.responses import DraftContext, Speculation
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.drafting.composed_context import ContextRead
from tests.drafter_client.http.fake_transports import SAMPLING, body, streamed
from tests.drafter_client.support import PROMPT

SOME = {"tokens": [5], "sources": "b", "text": "x"}
END: dict[str, Any] = {
    "token_ids": [5, 5],
    "finish_reason": "length",
    "session_id": "s",
    "text": "xx",
    "prompt_tokens": len(PROMPT),
    "generated_tokens": 2,
    "model": "honest",
    "mode": "target",
    "sampling": body(SAMPLING),
    "sources": "bb",
    "timing": {"queue_ms": 1.0, "forward_ms": 20.0, "sessions": 1},
}
OPEN = {"session_id": "s", "prompt_len": len(PROMPT), "identity": "", "sampling": body(SAMPLING)}


class Streaming(httpx.MockTransport):
    """Streams events; the clock moves only by the seconds that each event takes."""

    def __init__(self, events: list[tuple[float, str, Any]]) -> None:
        super().__init__(lambda request: streamed(self.events(json.loads(request.content))))
        self.now = 0.0
        self._events = events

    def events(self, asked: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        position = len(asked["prompt_ids"]) + len(asked.get("committed_ids", ()))
        for seconds, name, data in self._events:
            self.now += seconds
            if name == "end":
                yield name, data
            else:
                yield name, {"position": position} | data
                position += len(data.get("tokens") or ())


def _read(transport: Streaming, limit: int = 1000, ids: int = 300, known: Sequence[int] = ()) -> Stats:
    client, stats = VerifierClient("http://v", transport=transport), Stats()
    bounds, request = ResponseBounds("http://v", ids, len(PROMPT) + limit), {"max_tokens": limit, "seed": 1}
    text = TextSession(PROMPT)
    text.known += known
    for _ in served(client, text, request, bounds, StatsCounter(stats).take, lambda: transport.now):
        pass
    return stats


def test_rate_and_first_token_are_timed_on_the_drafters_clock() -> None:
    stats = _read(Streaming([(0.5, "tokens", SOME), (1.0, "tokens", SOME), (0.5, "end", END)]))
    assert (stats.ttft_ms, stats.total_ms, stats.tokens_per_second, stats.token_ids) == (500.0, 2000.0, 1.0, [5, 5])
    assert (stats.times.queue, stats.times.verify, stats.times.network) == pytest.approx((0.001, 0.02, 1.979))
    assert stats.finish_reason == "length"


def test_stream_without_a_summary_raises_connection_lost() -> None:
    with pytest.raises(ConnectionLost, match="ended its stream without a summary"):
        _read(Streaming([(0.5, "tokens", SOME)]))


@pytest.mark.parametrize(
    "change",
    [
        {"token_ids": None},
        {"token_ids": ["a"]},
        {"token_ids": [5]},
        {"finish_reason": None},
        {"timing": 3},
        {"sampling": 1},
    ],
    ids=str,
)
def test_inconsistent_summary_is_refused(change: Any) -> None:
    with pytest.raises(BadReply, match="http://v/generate: "):
        _read(Streaming([(0.5, "tokens", SOME), (0.1, "tokens", SOME), (0.5, "end", END | change)]))


def test_stream_that_continues_after_its_summary_is_refused() -> None:
    events: list[tuple[float, str, Any]] = [(0.1, "tokens", SOME), (0.1, "tokens", SOME), (0.1, "end", END)]
    with pytest.raises(BadReply, match="continues after its summary"):
        _read(Streaming([*events, (0.1, "tokens", SOME)]))


def test_summary_of_a_resumed_text_covers_the_whole_text() -> None:
    events: list[tuple[float, str, Any]] = [(0.1, "open", OPEN), (0.1, "tokens", SOME)]
    stats = _read(Streaming([*events, (0.1, "end", END | {"token_ids": [7, 8, 5]})]), known=[7, 8])
    assert stats.token_ids == [5]
    with pytest.raises(BadReply, match="token_ids differs from the streamed tokens"):
        _read(Streaming([*events, (0.1, "end", END | {"token_ids": [5]})]), known=[7, 8])


def test_statistics_of_server_side_drafting_are_taken_over() -> None:
    events: list[tuple[float, str, Any]] = [
        (0.5, "tokens", SOME | {"judged": 0, "accepted": 0}),
        (0.5, "tokens", SOME | {"tokens": [1, 2, 3], "sources": "aarx", "judged": 4, "accepted": 2}),
        (0.5, "tokens", SOME | {"tokens": [4, 6], "sources": "ab", "judged": 1, "accepted": 1}),
    ]
    speculation = Speculation(
        rounds=2,
        drafted=5,
        accepted=3,
        acceptance_rate=0.6,
        mean_acceptance_length=2.5,
        accepted_per_position=[2, 1],
        looked_up=2,
        looked_up_accepted=1,
        drafting_ms=7.0,
        draft_context=DraftContext(sink=64, pieces=256, window=600, of=9000),
    )
    end = END | {"token_ids": [5, 1, 2, 3, 4, 6], "draft_model": "small", "speculation": body(speculation)}
    stats = _read(Streaming([*events, (0.1, "end", end)]))
    assert (stats.draft_model, stats.rounds, stats.drafted, stats.accepted) == ("small", 2, 5, 3)
    assert (stats.looked_up, stats.looked_up_accepted, stats.times.drafting) == (2, 1, 0.007)
    assert stats.draft_context == ContextRead(64, 256, 600, 9000)
    assert stats.sources == {TokenSource.BONUS: 2, TokenSource.ACCEPTED: 3, TokenSource.RECOVERED: 1}
