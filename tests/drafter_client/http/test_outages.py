"""Waiting for a verifier that went away: for how long, who is told, and what ends it."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from drafter_client.errors import BadKey, ConnectionLost, DrafterError, VerifierTimeout, VerifierUnreachable
from drafter_client.generation.text_session import Stop
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Health, Outage, Outages, is_outage
from drafter_client.http.transport import Reply
from speculation.errors import (
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
from tests.drafter_client.http.fake_transports import Canned

AWAY, READY = Health(False, "nothing answers"), Health(True)
LOST = ConnectionLost("the cable was pulled")


class Hours(Stop):
    """A clock that only waiting moves, without taking time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.waits = 0

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waits += 1


def _wait(
    looks: Sequence[Health], failure: Exception = LOST, patience: float = 300.0, stop: Hours | None = None
) -> tuple[bool, list[Outage], Hours]:
    """Wait through these looks, the last of which is repeated."""
    told: list[Outage] = []
    stop, left = stop or Hours(), list(looks)
    outages = Outages(patience, told.append, lambda: stop.now)
    ready = outages.begin(stop).until_ready(failure, lambda: left.pop(0) if len(left) > 1 else left[0])
    return ready, told, stop


def test_it_goes_on_as_soon_as_the_verifier_is_ready() -> None:
    ready, told, stop = _wait([AWAY, AWAY, Health(False, "it loads its model", 0.4), READY])
    assert ready and stop.now == 100.75
    assert told == [Outage(0.0, 300.0, "nothing answers")]


def test_it_is_told_about_once_a_second_with_what_is_known() -> None:
    _, told, _ = _wait([AWAY] * 6 + [Health(False, "it loads its model", 0.4)] * 6 + [READY])
    assert [round(each.seconds) for each in told] == [0, 1, 2]
    assert told[-1] == Outage(told[-1].seconds, 300.0, "it loads its model", 0.4)


def test_patience_has_an_end_and_then_the_error_is_the_first() -> None:
    stop = Hours()
    with pytest.raises(ConnectionLost, match="the cable was pulled"):
        _wait([AWAY], patience=20.0, stop=stop)
    assert stop.now == 120.0


def test_without_patience_one_look_is_all() -> None:
    stop = Hours()
    with pytest.raises(ConnectionLost):
        _wait([AWAY], patience=0.0, stop=stop)
    assert stop.waits == 0
    assert _wait([READY], patience=0.0)[0], "a session may be gone and the verifier there"


@pytest.mark.parametrize(
    ("failure", "patience", "gaps", "seconds"),
    [
        (LOST, 300.0, [1.0, 2.0, 4.0, 5.0, 5.0, 5.0], 22.0),
        (LOST, 6.0, [1.0, 2.0, 3.0], 6.0),
        (Overloaded("full", retry_after=9), 40.0, [9.0, 9.0, 9.0], 36.0),
    ],
)
def test_a_verifier_that_is_ready_and_fails_again_is_asked_less_and_less_and_not_for_ever(
    failure: Exception, patience: float, gaps: list[float], seconds: float
) -> None:
    stop = Hours()
    outage = Outages(patience, None, lambda: stop.now).begin(stop)
    tries = []
    with suppress(type(failure)):
        while len(tries) < 100:
            assert outage.until_ready(failure, lambda: READY)
            tries.append(stop.now)
    assert [later - sooner for sooner, later in pairwise(tries)] == gaps
    assert stop.now == 100.0 + seconds


def test_one_that_goes_away_again_and_again_is_not_taken_for_one_that_is_there() -> None:
    stop = Hours()
    outage = Outages(300.0, None, lambda: stop.now).begin(stop)
    for _ in range(20):
        looks = [AWAY, READY]
        assert outage.until_ready(LOST, lambda looks=looks: looks.pop(0))  # type: ignore[misc]


def test_an_engine_that_fails_is_no_outage_where_the_verifier_is_there() -> None:
    with pytest.raises(EngineError, match="broken"):
        _wait([READY], EngineError("broken"))
    assert _wait([AWAY, READY], EngineError("the engine was stopped"))[0]


def test_stopping_ends_it_at_once() -> None:
    """From another thread, in the middle of a wait; and whether the text or all that is written is to end."""
    for which in (0, 1):
        above = Stop()
        stops = [above, Stop(above)]
        looked = threading.Event()

        def look(seen: threading.Event = looked) -> Health:
            seen.set()
            return AWAY

        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(Outages(300.0).begin(stops[1]).until_ready, LOST, look)
            assert looked.wait(10)
            stops[which].set()
            assert pending.result(10) is False


def test_what_is_under_way_is_broken_off_by_stopping() -> None:
    above = Stop()
    stop, broken = Stop(above), []
    with stop.breaking(lambda: broken.append("off")):
        above.set()
        assert broken == ["off"]
    above.set()
    assert broken == ["off"], "it is over"
    with Stop(above).breaking(lambda: broken.append("late")):
        assert broken == ["off", "late"]


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (LOST, True),
        (VerifierUnreachable("nobody"), True),
        (VerifierTimeout("silence"), True),
        (ModelLoading("loading"), True),
        (ShuttingDown("ends"), True),
        (UnknownSession("no session"), True),
        (Overloaded("full"), True),
        (SessionConflict("a later request has it"), True),
        (from_body(502, None), True),
        (ServerError("whatever"), True),
        (ModelFailed("no such file"), False),
        (InternalError("a fault"), False),
        (InvalidRequest("what"), False),
        (BadKey("wrong"), False),
        (ZeroDivisionError(), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_is_taken_for_an_outage(error: Exception, outage: bool) -> None:
    assert is_outage(error) is outage


def _loading(progress: float) -> Reply:
    return Reply(503, {"status": "loading", "progress": progress})


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (Reply(200, {"status": "ready"}), READY),
        (_loading(0.25), Health(False, "it loads its model", 0.25)),
        (Reply(503, ModelLoading("the model is loading (3 %)").body()), Health(False, "the model is loading (3 %)")),
        (Reply(503, ShuttingDown("ends").body()), Health(False, "ends")),
        (Reply(502, None), Health(False, "HTTP 502 without an error the protocol knows: is this a verifier?")),
        (LOST, AWAY),
        (VerifierUnreachable("nobody"), AWAY),
        (VerifierTimeout("silence"), AWAY),
    ],
    ids=str,
)
def test_how_a_verifier_is(answer: Any, health: Health) -> None:
    assert VerifierClient("http://v", transport=Canned(answer)).health() == health


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (Reply(503, {"status": "failed", "reason": "no such file"}), DrafterError, "http://v has failed: no such file"),
        (Reply(401, {"error": {"code": "unauthorized", "message": "no"}}), BadKey, "wants its key"),
    ],
)
def test_what_stands_in_the_way_for_good_is_raised(answer: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        VerifierClient("http://v", transport=Canned(answer)).health()


INFO = {
    "model": "m",
    "context_length": 9,
    "max_draft_tokens": 4,
    "pass_ms": [],
    "self_continue": True,
    "chat_template": None,
    "vocabulary": {"size": 4, "below": 4, "begin": None, "ends": [], "ordinary": "a", "control": "b"},
}


def _asking(*answers: Any, patience: float = 300.0) -> tuple[VerifierClient, Canned]:
    outages = Outages(patience, None, lambda: stop.now)
    outages.stop = stop = Hours()
    transport = Canned(*answers)
    return VerifierClient("http://v", transport=transport, outages=outages, sleep=lambda _: None), transport


@pytest.mark.parametrize(
    "answers",
    [
        [Reply(503, ModelLoading("loading").body()), _loading(0.5), Reply(200, {"status": "ready"})],
        [Reply(200, {}), *[VerifierUnreachable("nobody")] * 4, VerifierUnreachable("nobody"), Reply(200, {})],
    ],
    ids=["loading", "away"],
)
def test_what_can_be_asked_at_any_time_is_asked_again(answers: list[Any]) -> None:
    client, transport = _asking(*answers, Reply(200, INFO))
    if answers[0].status == 200:
        client.ping()  # it was reached before
    assert client.model().name == "m"
    assert transport.asked[-1] == ("GET", "/model")


def test_a_verifier_that_was_never_reached_is_not_waited_for() -> None:
    client, transport = _asking(VerifierUnreachable("nobody"))
    with pytest.raises(VerifierUnreachable):
        client.wait_until_ready()
    assert len(transport.asked) == 1


def test_what_is_refused_is_not_asked_again() -> None:
    client, transport = _asking(Reply(422, InvalidRequest("what").body()))
    with pytest.raises(InvalidRequest):
        client.model()
    assert len(transport.asked) == 1


def test_patience_with_a_question_ends_too() -> None:
    loading = Reply(503, ModelLoading("loading").body())
    client, _ = _asking(loading, *[_loading(0.5)] * 50, patience=3.0)
    with pytest.raises(ModelLoading):
        client.model()
