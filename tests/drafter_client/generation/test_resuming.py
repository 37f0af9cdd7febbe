"""A text goes on when its verifier is back: nothing of it is lost or doubled, and what it took is told."""

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from drafter_client.errors import BadReply, ConnectionLost, ModelChanged, VerifierUnreachable
from drafter_client.generation.observer import Committed
from drafter_client.generation.resuming import Run, released, resuming
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.fields import Fields
from drafter_client.http.outages import Health, Outages
from drafter_client.http.responses import ModelInfo, PrefillResponse, ResponseBounds
from drafter_client.http.transport import Reply
from drafter_client.metrics.statistics import Stats
from drafter_client.metrics.token_source import TokenSource
from speculation.errors import EngineError, InternalError, ModelLoading, Overloaded, SessionConflict, UnknownSession
from tests.drafter_client.http.fake_transports import Canned

PROMPT = [1, 2, 3]
TARGET: Any = None  # which these verifiers have all the same
LOST = ConnectionLost("the cable was pulled")
OUTAGES = (LOST, VerifierUnreachable("nobody"), ModelLoading("loading"), UnknownSession("no session"))


class Verifiers:
    """Attempts at a text of ten tokens, 10 to 19: each brings so many tokens and then fails, the last one ends it."""

    def __init__(self, *attempts: tuple[int, Exception | None], health: Sequence[Health] = (Health(True),)) -> None:
        self._attempts, self._health = list(attempts), list(health)
        self.asked: list[list[int]] = []  # what of the text was known at each attempt
        self.now = 0.0
        self.text = TextSession(PROMPT)
        self.stats = Stats()
        self.looks = self.closed = 0
        self.bounds = ResponseBounds("http://v", 100, len(PROMPT) + 10)

    def attempt(self) -> Run:
        self.asked.append(list(self.text.tokens))
        self.text.opened = True
        count, failure = self._attempts.pop(0)
        begin = 10 + len(self.text.tokens)
        for token in range(begin, min(begin + count, 20)):
            self.now += 1.0
            self.stats.token_ids.append(token)
            yield Committed([(token, TokenSource.BONUS)])
        if failure is not None:
            raise failure
        self.stats.finish_reason = "length"

    def another(self) -> "Verifiers":
        return self

    def health(self, _target: object = None) -> Health:
        self.looks += 1
        self.now += 1.0
        return self._health.pop(0) if len(self._health) > 1 else self._health[0]

    def abort(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1

    def run(self, patience: float = 300.0) -> Run:
        outages = Outages(patience, None, lambda: self.now)
        client: Any = self
        return resuming(self.attempt, self.text, self.bounds, self.stats, client, TARGET, outages, lambda: self.now)


def _tokens(run: Run) -> list[int]:
    return [token for committed in run for token, _ in committed.tokens]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drafter_client.http.outages._PAUSE", 0.0)


def test_a_text_without_an_outage_is_one_attempt() -> None:
    world = Verifiers((10, None))
    assert _tokens(world.run()) == [*range(10, 20)] == world.text.tokens == world.stats.token_ids
    assert world.stats.resumed == [] and world.looks == 0 and world.asked == [[]]


@pytest.mark.parametrize("error", OUTAGES, ids=lambda error: type(error).__name__)
def test_it_goes_on_behind_what_is_known(error: Exception) -> None:
    away = [Health(False, "nothing answers")] * 3 + [Health(True)]
    world = Verifiers((4, error), (3, error), (3, None), health=away)
    assert _tokens(world.run()) == [*range(10, 20)] == world.stats.token_ids
    assert world.asked == [[], [10, 11, 12, 13], [*range(10, 17)]]
    assert world.stats.resumed == [4, 7] and world.stats.total_ms == 5000.0, "what the looks took"


def test_waiting_in_vain_counts_in_the_total_time() -> None:
    world = Verifiers((4, LOST), health=[Health(False, "nothing answers")])
    with pytest.raises(ConnectionLost):
        _tokens(world.run(patience=20.0))
    assert world.stats.total_ms >= 20_000.0 and len(world.stats.token_ids) == 4


def test_attempts_that_bring_nothing_are_told_once() -> None:
    world = Verifiers((0, LOST), (4, LOST), (0, LOST), (0, LOST), (6, None))
    assert _tokens(world.run()) == [*range(10, 20)]
    assert world.stats.resumed == [4]


def test_what_only_lacks_its_end_is_whole() -> None:
    world = Verifiers((10, LOST))
    assert _tokens(world.run()) == [*range(10, 20)]
    assert world.stats.finish_reason == "length" and world.stats.resumed == [] and world.looks == 0
    summed_up = Verifiers((2, LOST))
    summed_up.stats.finish_reason = "stop"
    assert _tokens(summed_up.run()) == [10, 11] and summed_up.looks == 0


@pytest.mark.parametrize("error", [InternalError("a fault"), BadReply("nonsense"), ZeroDivisionError()], ids=repr)
def test_what_is_no_outage_is_raised(error: Exception) -> None:
    world = Verifiers((4, error))
    with pytest.raises(type(error)):
        _tokens(world.run())
    assert world.text.tokens == [10, 11, 12, 13] and world.looks == 0


def test_when_the_patience_is_over_what_is_known_was_passed_on() -> None:
    world = Verifiers((4, LOST), health=[Health(False, "nothing answers")])
    tokens: list[int] = []
    with pytest.raises(ConnectionLost, match="the cable was pulled"):
        tokens.extend(token for committed in world.run(patience=20.0) for token, _ in committed.tokens)
    assert tokens == [10, 11, 12, 13] and 20 <= world.looks <= 22


def test_patience_begins_anew_with_every_token() -> None:
    away = [Health(False, "nothing answers")] * 15 + [Health(True)]
    world = Verifiers((4, LOST), (1, LOST), (5, None), health=away + away)
    assert _tokens(world.run(patience=20.0)) == [*range(10, 20)] and world.looks == 32


def test_an_overloaded_verifier_loses_no_text() -> None:
    world = Verifiers((4, LOST), (0, Overloaded("full")), (6, None))
    assert _tokens(world.run()) == [*range(10, 20)]


def test_a_text_that_was_not_begun_waits_for_an_overloaded_verifier_for_a_minute() -> None:
    world = Verifiers((0, Overloaded("full", retry_after=0)), (0, Overloaded("full", retry_after=0)), (10, None))
    assert _tokens(world.run()) == [*range(10, 20)] and world.stats.resumed == []
    with pytest.raises(Overloaded, match="come tomorrow"):
        _tokens(Verifiers((0, Overloaded("come tomorrow", retry_after=61))).run())


def test_an_idle_connection_that_ended_long_ago_is_no_outage() -> None:
    world = Verifiers((0, LOST), (10, None))
    assert _tokens(world.run()) == [*range(10, 20)] and world.looks == 0 and world.stats.resumed == []


def test_an_old_request_that_comes_late_does_not_end_a_text() -> None:
    world = Verifiers((4, SessionConflict("the session goes on with a later request")), (6, None))
    assert _tokens(world.run()) == [*range(10, 20)] and world.stats.resumed == [4]


def test_a_verifier_that_comes_back_with_another_model_ends_the_text() -> None:
    def body(name: str, ordinary: str) -> dict[str, Any]:
        vocabulary = {"size": 9, "below": 9, "begin": 1, "ends": [8], "ordinary": ordinary, "control": "b"}
        limits = {"context_length": 100, "max_draft_tokens": 8, "pass_ms": [], "self_continue": False}
        return limits | {"model": name, "vocabulary": vocabulary, "chat_template": None}

    def served(name: str, ordinary: str) -> VerifierClient:
        ready = Reply(200, {"status": "ready"})
        return VerifierClient("http://v", transport=Canned(ready, Reply(200, body(name, ordinary))))

    target = ModelInfo.read(Fields("http://v/model", body("old", "a")), None)
    assert served("old", "a").health(target).ready
    with pytest.raises(ModelChanged, match="serves new now, and the text was begun by old"):
        served("new", "a").health(target)
    with pytest.raises(ModelChanged, match="with another vocabulary"):
        served("old", "b").health(target)


def test_an_engine_that_fails_is_told_as_such() -> None:
    with pytest.raises(EngineError):
        _tokens(Verifiers((4, EngineError("broken"))).run())


def test_stopping_ends_the_text_where_it_is() -> None:
    world = Verifiers((4, LOST), health=[Health(False, "nothing answers")])
    waiting = threading.Event()
    look = world.health

    def looking(_target: object = None) -> Health:
        waiting.set()
        world.now -= 1.0
        return look()

    world.health = looking  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(_tokens, world.run())
        assert waiting.wait(10)
        world.text.stop.set()
        assert pending.result(10) == [10, 11, 12, 13]
    assert world.stats.finish_reason is None and not world.text.opened, "nobody is there to release it"


def test_leaving_it_leaves_the_attempt() -> None:
    left = []
    world = Verifiers((4, None))
    attempt = world.attempt

    def noting() -> Run:
        try:
            yield from attempt()
        finally:
            left.append(True)

    world.attempt = noting  # type: ignore[method-assign]
    run = world.run()
    next(run)
    run.close()
    assert left == [True] and world.text.opened


@pytest.mark.parametrize(("opened", "asked"), [(True, [("DELETE", "/sessions/mine")]), (False, [])])
def test_a_session_is_released_if_a_verifier_may_hold_it(opened: bool, asked: list[tuple[str, str]]) -> None:
    transport = Canned(Reply(200, {}))
    client = VerifierClient("http://v", transport=transport)
    with released(client, TextSession(PROMPT, "mine", opened=opened)):
        pass
    assert transport.asked == asked
    gone = VerifierClient("http://v", transport=Canned(LOST), sleep=lambda _: None)
    gone._outages = Outages()
    with released(gone, TextSession(PROMPT, "mine")):
        pass


def _opened(**changed: Any) -> dict[str, Any]:
    return {
        "prompt_ids": PROMPT,
        "position": 5,
        "tokens": [9],
        "finish_reason": None,
        "sampling": {},
        "timing": {"queue_ms": 0.0, "forward_ms": 1.0},
    } | changed


def _prefill(known: list[int], **changed: Any) -> tuple[PrefillResponse, Any]:
    transport = Canned(Reply(200, _opened(**changed)))
    client = VerifierClient("http://v", transport=transport)
    opened = client.prefill(TextSession(PROMPT, "mine", tokens=known), {"max_tokens": 9, "seed": 1})
    return opened, json.loads(transport.bodies[0] or b"")


def test_a_prefill_says_what_is_committed() -> None:
    options = {"session_id": "mine", "prompt_ids": PROMPT, "max_tokens": 9, "seed": 1}
    opened, body = _prefill([7, 8])
    assert opened.tokens == [9] and body == options | {"committed_ids": [7, 8]}
    assert _prefill([])[1] == options
    assert _prefill([7, 8], tokens=[], finish_reason="length")[0].tokens == []


@pytest.mark.parametrize(
    ("known", "changed", "words"),
    [
        ([7, 8], {"position": 3}, "position is 3 where 5 is due"),
        ([7, 8], {"tokens": []}, "tokens is empty"),
        ([], {"tokens": [], "finish_reason": "length"}, "tokens is empty"),
    ],
)
def test_a_reply_that_goes_on_elsewhere_is_none(known: list[int], changed: dict[str, Any], words: str) -> None:
    with pytest.raises(BadReply, match=words):
        _prefill(known, **changed)
