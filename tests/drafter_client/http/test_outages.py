"""Waiting for a verifier that went away: how long, what is reported, and what ends the wait."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import httpx
import pytest

from drafter_client.errors import BadKey, ConnectionLost, DrafterError, VerifierTimeout, VerifierUnreachable
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Health, Outage, Outages, Stop
from drafter_client.http.retries import is_outage
from specpair.protocol.errors import (
    EngineError,
    InternalError,
    InvalidRequest,
    ModelFailed,
    ModelLoading,
    Overloaded,
    ServerError,
    SessionConflict,
    ShuttingDown,
    UnknownSession,
    from_body,
)
from tests.drafter_client.http.fake_transports import Canned, body, model_info, reply

AWAY, READY = Health(False, "nothing answers"), Health(True)
LOST = ConnectionLost("the cable was pulled")


class FakeWaits(Stop):
    """A stop whose waits only move its clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.waits = 0

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waits += 1


def _wait(
    checks: Sequence[Health], failure: Exception = LOST, patience: float = 300.0, stop: FakeWaits | None = None
) -> tuple[bool, list[Outage], FakeWaits]:
    """Wait while the health checks return `checks`, of which the last is repeated."""
    told: list[Outage] = []
    stop, left = stop or FakeWaits(), list(checks)
    outages = Outages(patience, told.append, lambda: stop.now)
    wait = outages.begin(stop, failure, begun=True)
    ready = wait.until_ready(failure, lambda: left.pop(0) if len(left) > 1 else left[0])
    return ready, told, stop


def test_a_wait_is_reported_about_once_a_second() -> None:
    _, told, _ = _wait([AWAY] * 6 + [Health(False, "loading its model", 0.4)] * 6 + [READY])
    assert [round(each.seconds) for each in told] == [0, 1, 2]
    assert told[-1] == Outage(told[-1].seconds, 300.0, "loading its model", 0.4)


def test_two_waits_are_one_outage_whose_begin_and_end_are_told_once() -> None:
    stop, told = FakeWaits(), list[Outage]()
    outages = Outages(300.0, told.append, lambda: stop.now)
    waits = [outages.begin(stop, LOST, begun=True) for _ in range(3)]
    for wait in waits:
        checks = [AWAY, AWAY, READY]
        assert wait.until_ready(LOST, lambda checks=checks: checks.pop(0))  # type: ignore[misc]
    waits[0].end(True)
    assert outages.present is not None and not told[-1].over, "another text waits"
    waits[1].end(True)
    waits[2].end(False)
    assert outages.present is None
    assert [each.over for each in told] == [False, False, True] and round(told[-1].seconds, 1) == 1.5
    outages.answered()
    assert len(told) == 3


def test_a_text_that_has_not_begun_waits_as_long_as_it_may() -> None:
    for begun, seconds in ((False, 20.0), (True, 300.0)):
        stop = FakeWaits()
        outages = Outages(300.0, None, lambda stop=stop: stop.now, 20.0)  # type: ignore[misc]
        with pytest.raises(ConnectionLost):
            outages.begin(stop, LOST, begun=begun).until_ready(LOST, lambda: AWAY)
        assert stop.now == 100.0 + seconds


def test_when_patience_is_over_the_first_error_is_raised() -> None:
    stop = FakeWaits()
    with pytest.raises(ConnectionLost) as caught:
        _wait([AWAY], patience=20.0, stop=stop)
    assert stop.now == 120.0
    assert str(caught.value) == "waited 20 s for the verifier (patience): the cable was pulled"


@pytest.mark.parametrize(
    ("failure", "patience", "gaps", "seconds"),
    [
        (LOST, 300.0, [1.0, 2.0, 4.0, 5.0, 5.0, 5.0], 22.0),
        (LOST, 6.0, [1.0, 2.0, 3.0], 6.0),
        (Overloaded("full", retry_after=9), 40.0, [9.0, 9.0, 9.0], 36.0),
    ],
)
def test_a_ready_verifier_that_keeps_failing_is_retried_less_and_less(
    failure: Exception, patience: float, gaps: list[float], seconds: float
) -> None:
    stop = FakeWaits()
    outage = Outages(patience, None, lambda: stop.now).begin(stop, failure, begun=True)
    attempts: list[float] = []
    with suppress(type(failure)):
        while len(attempts) < 100:
            assert outage.until_ready(failure, lambda: READY)
            attempts.append(stop.now)
    assert [later - sooner for sooner, later in pairwise(attempts)] == gaps
    assert stop.now == 100.0 + seconds


def test_an_engine_error_is_no_outage_where_the_verifier_is_ready() -> None:
    with pytest.raises(EngineError, match="broken"):
        _wait([READY], EngineError("broken"))
    assert _wait([AWAY, READY], EngineError("the engine was stopped"))[0]


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (LOST, True),
        (VerifierUnreachable("no answer"), True),
        (VerifierTimeout("silence"), True),
        (ModelLoading("loading"), True),
        (ShuttingDown("ends"), True),
        (UnknownSession("no session"), True),
        (Overloaded("full"), True),
        (SessionConflict("a later request has it"), True),
        (from_body(502, b""), True),
        (ServerError("other"), True),
        (ModelFailed("no such file"), False),
        (InternalError("a fault"), False),
        (InvalidRequest("what"), False),
        (BadKey("wrong"), False),
        (ZeroDivisionError(), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_which_errors_are_an_outage(error: Exception, outage: bool) -> None:
    assert is_outage(error) is outage


def _loading(progress: float) -> httpx.Response:
    return reply(503, {"status": "loading", "progress": progress})


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (reply(200, {"status": "ready"}), READY),
        (_loading(0.25), Health(False, "loading its model", 0.25)),
        (reply(503, ModelLoading("the model is loading (3 %)").body()), Health(False, "the model is loading (3 %)")),
        (reply(503, ShuttingDown("ends").body()), Health(False, "ends")),
        (reply(503, {"status": "failed", "reason": "it\ndied"}), Health(False, "it has failed: it\\ndied")),
        (httpx.Response(200, content=b"<html>"), Health(False, "nothing answers")),
        (reply(503, {"status": "verifier_away", "reason": "no node\nis"}), Health(False, "no node\\nis")),
        (reply(502, None), Health(False, "a proxy answers HTTP 502 in place of the verifier")),
        (LOST, AWAY),
        (VerifierUnreachable("no answer"), AWAY),
        (VerifierTimeout("silence"), AWAY),
    ],
    ids=str,
)
def test_health_of_each_response(answer: Any, health: Health) -> None:
    assert VerifierClient("http://v", transport=Canned(answer)).health() == health


@pytest.mark.parametrize(
    ("answer", "started", "error", "words"),
    [
        (reply(503, {"status": "failed", "reason": "no file"}), False, DrafterError, "http://v has failed: no file"),
        (reply(401, {"error": {"code": "unauthorized", "message": "no"}}), True, BadKey, "wants its key"),
    ],
)
def test_health_raises_what_waiting_does_not_mend(
    answer: Any, started: bool, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        VerifierClient("http://v", transport=Canned(answer)).health(started=started)


def _asking(*answers: Any, patience: float = 300.0) -> tuple[VerifierClient, Canned]:
    outages = Outages(patience, None, lambda: stop.now)
    outages.stop = stop = FakeWaits()
    transport = Canned(*answers)
    return VerifierClient("http://v", transport=transport, outages=outages, sleep=lambda _: None), transport


@pytest.mark.parametrize(
    "answers",
    [
        [reply(503, ModelLoading("loading").body()), _loading(0.5), reply(200, {"status": "ready"})],
        [
            reply(200, {}),
            *[VerifierUnreachable("no answer")] * 4,
            VerifierUnreachable("no answer"),
            reply(200, {"status": "ready"}),
        ],
    ],
    ids=["loading", "away"],
)
def test_a_request_without_a_session_is_repeated_after_an_outage(answers: list[Any]) -> None:
    client, transport = _asking(*answers, reply(200, body(model_info(name="m"))))
    if answers[0].status_code == 200:
        client.ping()  # it was reached before
    assert client.model().name == "m"
    assert transport.asked[-1] == ("GET", "/model")
