"""Resuming after an outage: no token is lost or doubled, and the waiting time counts."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from drafter_client.errors import ConnectionLost, VerifierUnreachable
from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.events import Began, Committed, Ended, ModeChosen
from drafter_client.generation.resuming import Run, resuming
from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Health, Outages, Stop
from drafter_client.http.text_session import ResponseBounds, TextSession
from drafter_client.options import Mode
from drafter_client.statistics import Stats
from specpair.protocol.errors import (
    ModelLoading,
    ShuttingDown,
    UnknownSession,
)
from specpair.protocol.responses import PrefillResponse
from specpair.speculation.acceptance.token_sources import TokenSource
from tests.drafter_client.http.fake_transports import Canned, body, prefilled, reply

PROMPT = [1, 2, 3]
LOST = ConnectionLost("the cable was pulled")
OUTAGES = (LOST, VerifierUnreachable("no server"), ModelLoading("loading"), UnknownSession("no session"))


class World:
    """Attempts at a text of ten tokens, 10 to 19: each yields a number of tokens, then fails or ends the text."""

    def __init__(self, *attempts: tuple[int, Exception | None], health: Sequence[Health] = (Health(True),)) -> None:
        self._attempts, self._health = list(attempts), list(health)
        self.known: list[list[int]] = []  # tokens known at the begin of each attempt
        self.now = 0.0
        self.text = TextSession(PROMPT)
        self.stats = Stats()
        self.tell = StatsCounter(self.stats).take
        self.health_checks = self.closed = 0
        self.address, self.others = VerifierAddress("http://v"), None
        self.bounds = ResponseBounds("http://v", 100, len(PROMPT) + 10)

    def attempt(self) -> Run:
        self.known.append(list(self.text.tokens))
        self.text.opened = True
        self.tell(Began(len(PROMPT)), self.now)
        count, failure = self._attempts.pop(0)
        begin = 10 + len(self.text.tokens)
        try:
            for token in range(begin, min(begin + count, 20)):
                self.now += 1.0
                committed = Committed(len(self.text.known), [(token, TokenSource.BONUS)])
                self.text.known.append(token)
                self.tell(committed, self.now)
                yield committed
            if failure is not None:
                raise failure
            self.text.finish_reason = "length"
        finally:
            self.tell(Ended(self.text.finish_reason), self.now)

    def another(self) -> "World":
        return self

    def moved_after(self, error: Exception) -> bool:
        return False

    def move_to(self, address: VerifierAddress) -> None:
        assert address == self.address

    def look(self) -> Health:
        self.health_checks += 1
        self.now += 1.0
        return self._health.pop(0) if len(self._health) > 1 else self._health[0]

    def abort(self) -> None:
        pass

    def aborted_by(self, stop: Stop) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        self.closed += 1

    def run(self, patience: float = 300.0) -> Run:
        outages = Outages(patience, None, lambda: self.now)
        client: Any = self
        return resuming(
            *(self.attempt, self.text, lambda: self.bounds, self.tell, client, outages, lambda: self.now, _refused)
        )


def _refused(error: Exception) -> bool:
    raise error


def _tokens(run: Run) -> list[int]:
    return [token for committed in run for token, _ in committed.tokens]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drafter_client.http.retries.CHECK_PAUSE", 0.0)


@pytest.mark.parametrize("error", OUTAGES, ids=lambda error: type(error).__name__)
def test_text_resumes_after_the_known_tokens(error: Exception) -> None:
    unreachable = [Health(False, "nothing answers")] * 3 + [Health(True)]
    world = World((4, error), (3, error), (3, None), health=unreachable)
    assert _tokens(world.run()) == [*range(10, 20)] == world.stats.token_ids
    assert world.known == [[], [10, 11, 12, 13], [*range(10, 17)]]
    assert world.stats.resumed == [4, 7] and world.stats.total_ms == 15000.0, "with the health checks"
    assert (world.stats.outages, world.stats.outage_time) == (2, 5.0), "one second each"
    assert (world.stats.tokens_per_second, world.stats.ttft) == (1.0, 1.0), "the outages are no part of the speed"


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.TARGET, Mode.AUTO])
def test_an_outage_is_no_part_of_ttft_and_latencies_and_has_its_own_share(mode: Mode) -> None:
    away = [Health(False, "nothing answers"), Health(True)]
    world = World((0, LOST), (0, LOST), (4, LOST), (6, None), health=away)
    world.stats.mode = mode
    if mode is Mode.AUTO:
        world.tell(ModeChosen(Mode.TARGET), 0.0)
    assert _tokens(world.run()) == [*range(10, 20)]
    stats = world.stats
    assert (stats.ttft, stats.outages, stats.working_time) == (1.0, 2, 10.0)
    waits = stats.waits()
    assert waits["outage"] == stats.outage_time == stats.total_time - 10.0 and sum(waits.values()) == stats.total_time
    assert stats.token_times == ([1.0] * 10 if mode is Mode.TARGET else [])


def test_text_that_lacks_only_its_summary_is_complete() -> None:
    world = World((10, LOST))
    assert _tokens(world.run()) == [*range(10, 20)]
    assert world.stats.finish_reason == "length" and world.stats.resumed == [] and world.health_checks == 0
    with_summary = World((2, LOST))
    with_summary.text.finish_reason = "stop"
    assert _tokens(with_summary.run()) == [10, 11] and with_summary.health_checks == 0


@pytest.mark.parametrize("error", [ShuttingDown("draining"), ModelLoading("loading")])
def test_a_text_leaves_a_verifier_that_shuts_down_or_loads_behind_a_router(error: Exception) -> None:
    """A router leads by the session's id."""
    world = World((0, error), (4, LOST), (6, None))
    before = world.text.session_id
    run = world.run()
    next(run)
    after = world.text.session_id
    assert after != before
    assert len(_tokens(run)) == 9 and world.text.session_id == after


def _prefill(known: list[int], **changed: Any) -> tuple[PrefillResponse, Any]:
    transport = Canned(reply(200, body(prefilled(PROMPT, [9], len(known))) | changed))
    client = VerifierClient("http://v", transport=transport)
    text = TextSession(PROMPT, "mine")
    text.known += known
    opened = client.prefill(text, {"max_tokens": 9, "seed": 1})
    assert transport.requests[0].headers["X-Session-Id"] == "mine"
    return opened, json.loads(transport.bodies[0] or b"")


def test_prefill_sends_the_committed_tokens() -> None:
    options = {"prompt_ids": PROMPT, "max_tokens": 9, "seed": 1}
    opened, sent = _prefill([7, 8])
    assert opened.tokens == [9] and sent == options | {"committed_ids": [7, 8]}
    assert _prefill([])[1] == options
    assert _prefill([7, 8], tokens=[], finish_reason="length")[0].tokens == []
