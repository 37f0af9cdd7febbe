"""The measured baseline: the target alone through the same server, timed by the client and compared token by token."""

from collections.abc import Iterator
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.baseline import run_baseline
from drafter_client.client import VerifierClient
from drafter_client.errors import BadReply
from tests.drafter_client.fake_transports import Canned
from tests.drafter_client.support import PROMPT, Ticks, plain

SOME = {"tokens": [5]}


class Streaming(Canned):
    """Streams events; the clock stands still but for the seconds that each of them takes."""

    def __init__(self, events: list[tuple[float, str, dict[str, Any]]]) -> None:
        super().__init__()
        self.now = 0.0
        self._events = events

    def stream(self, path: str, body: bytes, headers: dict[str, str], timeout: float) -> Iterator[tuple[str, Any]]:
        for seconds, name, data in self._events:
            self.now += seconds
            yield name, data


def test_rate_and_first_token_are_timed_on_this_side() -> None:
    ids = list(range(10))
    transport = Streaming([(0.5, "tokens", SOME), (1.0, "tokens", SOME), (1.0, "end", {"token_ids": ids})])
    client = VerifierClient("http://v", transport=transport)
    baseline = run_baseline(client, PROMPT, {}, ids, lambda: transport.now)
    assert (baseline.ttft_ms, baseline.tokens_per_second, baseline.generated_tokens) == (500.0, 4.0, 10)


@pytest.mark.parametrize("change", [lambda ids: ids, lambda ids: ids[:-1], lambda ids: [*ids[:-1], 0], lambda ids: []])
def test_the_same_text_is_the_very_same_tokens(client: VerifierClient, change: Any) -> None:
    ids = plain(ScriptedBackend(Script(seed=1)), PROMPT, 8)
    other = change(ids)
    baseline = run_baseline(client, PROMPT, {"max_tokens": 8, "seed": 1}, other, Ticks())
    assert baseline.same_tokens is (other == ids)


def test_a_stream_without_its_summary_is_no_baseline() -> None:
    transport = Streaming([(0.5, "tokens", SOME)])
    with pytest.raises(BadReply, match="ended its stream without a summary"):
        run_baseline(VerifierClient("http://v", transport=transport), PROMPT, {}, [], Ticks())


def test_a_stream_without_an_end_is_not_read_for_ever() -> None:
    client = VerifierClient("http://v", transport=Streaming([(0.5, "tokens", SOME)] * 10))
    with pytest.raises(BadReply, match="/generate: tokens are 4 so far, and 3 were asked for"):
        run_baseline(client, PROMPT, {"max_tokens": 3}, [], Ticks())


@pytest.mark.parametrize("summary", [{}, [], {"token_ids": None}, {"token_ids": ["a"]}], ids=str)
def test_a_summary_without_token_ids_is_none(summary: Any) -> None:
    client = VerifierClient("http://v", transport=Streaming([(0.5, "end", summary)]))
    with pytest.raises(BadReply, match="http://v/generate: "):
        run_baseline(client, PROMPT, {}, [], Ticks())
