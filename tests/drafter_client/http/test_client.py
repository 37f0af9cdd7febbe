"""The client: waits for a loading verifier, retries what is safe to repeat, and reports other errors plainly."""

import json
from contextlib import closing
from typing import Any

import pytest

from drafter_client.errors import BadKey, BadReply, ConnectionLost, DrafterError, VerifierTimeout, VerifierUnreachable
from drafter_client.generation.resuming import released
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import StreamedTokens, StreamEnd
from drafter_client.http.transport import Reply
from speculation.errors import (
    ModelLoading,
    NotFound,
    Overloaded,
    PositionBeyondCommitted,
    RequestError,
    ServerError,
    SpecPairError,
    UnknownSession,
)
from tests.drafter_client.http.fake_transports import Canned, Sleeper
from tests.drafter_client.support import Verifier, serving

VERIFIED = {
    "accepted_prefix_len": 0,
    "judged": 0,
    "tokens": [5, 6],
    "finish_reason": None,
    "timing": {"queue_ms": 0.5, "forward_ms": 1.5, "sessions": 3},
}
OTHER_MODELS: list[Any] = [{}, [], "hello", None, {"model": "x"}, {"model": "x", "vocabulary": "abc"}]
LOST = ConnectionLost("the connection broke")
AWAY = VerifierUnreachable("no verifier answers")


def _client(*answers: Reply | Exception, **options: Any) -> tuple[VerifierClient, Canned, Sleeper]:
    transport, time = Canned(*answers), Sleeper()
    client = VerifierClient("http://v", transport=transport, sleep=time.sleep, clock=time.clock, **options)
    return client, transport, time


def _refusal(error: SpecPairError, retry_after: float | None = None) -> Reply:
    return Reply(error.status, error.body(), retry_after)


def _loading(progress: float) -> Reply:
    return Reply(503, {"status": "loading", "progress": progress})


def test_wait_until_ready_waits_for_loading_and_reports_progress() -> None:
    client, _, time = _client(_loading(0.1), _loading(0.6), Reply(200, {"status": "ready"}))
    told: list[float | None] = []
    client.wait_until_ready(on_wait=told.append)
    assert told == [0.1, 0.6]
    assert len(time.slept) == 2 and all(0 < pause < 1 for pause in time.slept)


def test_wait_until_ready_ends_when_patience_is_over() -> None:
    client, transport, time = _client(*[_loading(0.5)] * 100)
    with pytest.raises(DrafterError, match="still loading its model after 10 s"):
        client.wait_until_ready(patience=10.0)
    assert 10.0 <= time.now < 11.0
    assert len(transport.asked) == len(time.slept) + 1


def test_a_failed_load_is_reported_with_its_reason() -> None:
    client, _, _ = _client(_loading(0.2), Reply(503, {"status": "failed", "reason": "no such file: x.gguf"}))
    with pytest.raises(DrafterError, match=r"could not load its model: no such file: x\.gguf"):
        client.wait_until_ready()


def test_a_real_verifier_is_ready() -> None:
    with serving(wait=False) as verifier, closing(VerifierClient(verifier.url)) as client:
        client.wait_until_ready()
        assert client.model().name == "scripted-1"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(404, None), RequestError),
        (Reply(404, {"detail": "Not Found"}), RequestError),
        (Reply(502, None), ServerError),
        (Reply(503, ["busy"]), ServerError),
    ],
)
def test_an_unknown_health_response_asks_whether_it_is_a_verifier(reply: Reply, kind: type[Exception]) -> None:
    client, _, _ = _client(reply)
    with pytest.raises(kind, match="is this a verifier"):
        client.wait_until_ready()


@pytest.mark.parametrize(
    "reply",
    [
        *(Reply(200, body) for body in OTHER_MODELS),
        Reply(200, {"model": "x", "vocabulary": {"ends": 3}}),
        Reply(200, {"model": "x", "vocabulary": {"ends": [3], "colour": "red"}}),
        Reply(404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}),
        _refusal(NotFound("there is nothing at /model")),
        Reply(404, None),
    ],
)
def test_a_server_that_is_no_verifier_is_recognised_by_its_model(reply: Reply) -> None:
    client, _, _ = _client(reply)
    with pytest.raises(BadReply, match=r"http://v.*/model.*is it"):
        client.model()


def test_the_key_is_sent_with_every_request_and_a_wrong_key_is_reported() -> None:
    with serving(api_key="sesame") as verifier:
        with closing(VerifierClient(verifier.url, api_key="sesame")) as client:
            assert client.model().name == "scripted-1"
            opened = client.prefill(TextSession([1, 2]), {"max_tokens": 3})
            client.verify(opened.session_id, 3, [])
            with released(client, TextSession([1, 2])) as text:
                events = [name for name, _ in client.generate(text, {"max_tokens": 2})]
            assert events == ["open", "tokens", "tokens", "end"]
            client.release(opened.session_id)
        for key, words in (("Sesame", "does not take this key"), (None, "wants its key"), ("", "wants its key")):
            client, refused = VerifierClient(verifier.url, api_key=key), pytest.raises(BadKey, match=words)
            with closing(client), refused:
                client.model()


@pytest.mark.parametrize("key", ["a\n", "a\r\nX-Evil: 1", "schl\u00fcssel", "\x00"])
def test_a_key_that_no_header_can_carry_is_refused_at_once(key: str) -> None:
    with pytest.raises(BadKey, match="API key"):
        VerifierClient("http://v", api_key=key, transport=Canned())


def test_an_overloaded_verifier_is_retried_after_the_pause_it_asks_for() -> None:
    busy = _refusal(Overloaded("all sessions are taken"), 2.0)
    client, transport, time = _client(busy, busy, Reply(200, VERIFIED))
    assert client.verify("s", 3, [5, 7]).tokens == [5, 6]
    assert time.slept == [2.0, 2.0] and len(transport.asked) == 3


def test_retries_with_an_overloaded_verifier_end_within_their_limit() -> None:
    client, _, time = _client(*[_refusal(Overloaded("all sessions are taken"), 7.0)] * 100)
    with pytest.raises(Overloaded, match="all sessions are taken"):
        client.verify("s", 3, [5])
    assert 50.0 <= time.now <= 60.0
    client, _, time = _client(_refusal(Overloaded("come tomorrow"), 86400.0))
    with pytest.raises(Overloaded, match="come tomorrow"):
        client.verify("s", 3, [5])
    assert time.slept == []


def test_an_overload_without_a_pause_and_other_refusals_are_final() -> None:
    for refusal in (Overloaded("full"), UnknownSession("no session s"), ModelLoading("the model is loading")):
        client, transport, _ = _client(_refusal(refusal))
        with pytest.raises(type(refusal), match=refusal.message):
            client.verify("s", 3, [5])
        assert len(transport.asked) == 1


def test_an_overloaded_prefill_is_refused_with_the_seconds_to_wait() -> None:
    client, transport, time = _client(_refusal(Overloaded("all sessions are taken"), 7.0))
    with pytest.raises(Overloaded) as refused:  # the caller decides whether to wait
        client.prefill(TextSession([1, 2]), {"max_tokens": 3})
    assert refused.value.details["retry_after"] == 7.0 and len(transport.asked) == 1 and not time.slept


def test_a_lost_connection_is_reopened_after_growing_pauses() -> None:
    client, transport, time = _client(LOST, AWAY, LOST, Reply(200, VERIFIED))
    assert client.verify("s", 3, [5, 7]).tokens == [5, 6]
    assert transport.asked == [("POST", "/verify")] * 4
    assert time.slept == [0.1, 0.2, 0.4]


def test_a_verifier_that_never_answered_is_not_retried() -> None:
    client, _, time = _client(AWAY)
    with pytest.raises(VerifierUnreachable):
        client.verify("s", 3, [5])
    assert time.slept == []


def test_a_verifier_that_answered_before_is_retried() -> None:
    client, _, time = _client(Reply(200, VERIFIED), AWAY, AWAY, Reply(200, VERIFIED))
    assert [client.verify("s", 3, [5, 7]).tokens for _ in range(2)] == [[5, 6]] * 2
    assert time.slept == [0.1, 0.2]


def test_a_lasting_outage_is_raised_after_some_seconds() -> None:
    client, _, time = _client(LOST, *[AWAY] * 20)
    with pytest.raises(VerifierUnreachable):
        client.verify("s", 3, [5])
    assert time.now == pytest.approx(6.3)
    client, _, _ = _client(*[LOST] * 20)
    with pytest.raises(ConnectionLost):
        client.verify("s", 3, [5])


def test_a_timeout_is_not_retried_which_would_double_the_load() -> None:
    client, transport, time = _client(VerifierTimeout("sent nothing"))
    with pytest.raises(VerifierTimeout):
        client.prefill(TextSession([1]), {})
    assert len(transport.asked) == 1 and time.slept == []


def test_a_prefill_has_a_long_timeout_and_health_a_short_one() -> None:
    client, transport, _ = _client(Reply(200, {"status": "ready"}), VerifierTimeout("x"), VerifierTimeout("x"))
    client.wait_until_ready()
    for ask in (lambda: client.prefill(TextSession([1]), {}), lambda: client.verify("s", 1, [])):
        with pytest.raises(VerifierTimeout):
            ask()
    health, prefill, verify = transport.timeouts
    assert health <= 10 < 60 <= verify <= prefill


def test_the_client_makes_a_long_session_id_and_sends_it_from_the_first_request() -> None:
    lost = [VerifierTimeout("x")] * 2
    client, transport, _ = _client(*lost, Reply(200, VERIFIED))
    for _ in lost:
        with pytest.raises(VerifierTimeout):
            client.prefill(TextSession([1]), {})
    client.verify("abc", 3, [])
    first, second, third = (headers["X-Session-Id"] for headers in transport.headers)
    assert first != second and len(first) == len(second) == 32 and third == "abc"


def test_a_verify_request_has_next_in_ms_and_self_continue_where_given() -> None:
    client, transport, _ = _client(*[Reply(200, VERIFIED)] * 4)
    client.verify("s", 3, [5, 7])
    client.begin_verify("s", 4, [], 12.345)()
    client.begin_verify("s", 4, [6], 12.345, False)()
    client.begin_verify("s", 4, [6], self_continue=True)()
    first, second, third, last = (json.loads(body or b"") for body in transport.bodies)
    assert first == {"position": 3, "draft_tokens": [5, 7]}
    assert second == {"position": 4, "draft_tokens": [], "next_in_ms": 12.3}
    assert third == {"position": 4, "draft_tokens": [6], "next_in_ms": 12.3, "self_continue": False}
    assert last == {"position": 4, "draft_tokens": [6], "self_continue": True}


def test_ping_measures_the_round_trip() -> None:
    time = Sleeper()

    class Slow(Canned):
        def exchange(self, *request: Any) -> Reply:
            time.now += 0.025
            return super().exchange(*request)

    client = VerifierClient("http://v", transport=Slow(Reply(200, {"status": "ready"})), clock=time.clock)
    assert client.ping() == pytest.approx(25.0)


def test_another_connection_has_the_same_address_and_key() -> None:
    made: list[Canned] = []

    def connect(url: str) -> Canned:
        assert url == "http://v"
        made.append(Canned(Reply(200, VERIFIED)))
        return made[-1]

    client = VerifierClient("http://v", api_key="sesame", connect=connect)
    other = client.another()
    other.verify("s", 3, [5])
    first, second = made
    assert (first.asked, second.asked) == ([], [("POST", "/verify")])
    assert second.headers[0]["Authorization"] == "Bearer sesame"


def test_another_connection_retries_from_the_start() -> None:
    answers: list[Reply | Exception] = [AWAY, Reply(200, VERIFIED)]
    other = VerifierClient("http://v", connect=lambda url: Canned(*answers)).another()
    other._sleep = lambda seconds: None
    assert other.verify("s", 3, [5, 7]).tokens == [5, 6]


def test_an_aborted_exchange_is_not_retried() -> None:
    client, transport, _ = _client(Reply(200, VERIFIED))
    client.abort()
    assert transport.aborted
    with pytest.raises(ConnectionLost, match="aborted"):
        client.verify("s", 3, [5])
    assert transport.asked == []


def test_abort_ends_the_pause_between_two_attempts() -> None:
    """A further connection really sleeps; this pause would last for half a minute."""
    busy = _refusal(Overloaded("all sessions are taken"), 30.0)

    class Aborting(Canned):
        def exchange(self, *request: Any) -> Reply:
            other.abort()
            return super().exchange(*request)

    other = VerifierClient("http://v", connect=lambda url: Aborting(busy, Reply(200, VERIFIED))).another()
    with pytest.raises(ConnectionLost, match="aborted"):
        other.verify("s", 3, [5])


def test_a_stream_yields_the_committed_tokens_from_a_position_on(verifier: Verifier) -> None:
    with closing(VerifierClient(verifier.url)) as client:
        opened = client.prefill(TextSession([1, 2]), {"max_tokens": 3})
        text = opened.tokens + client.verify(opened.session_id, 3, []).tokens
        text += client.verify(opened.session_id, 4, []).tokens
        for position in (2, 4):
            assert list(client.stream(opened.session_id, position)) == [
                StreamedTokens(position, text[position - 2 :], target_decoded=False, forward_ms=None),
                StreamEnd("length"),
            ]
        with pytest.raises(PositionBeyondCommitted):
            next(client.stream(opened.session_id, 6))
        client.release(opened.session_id)
        with pytest.raises(UnknownSession):
            next(client.stream(opened.session_id, 2))


def test_ten_seconds_of_silence_end_a_stream() -> None:
    """A verifier sends at least a comment every three."""
    client, transport, _ = _client(Reply(404, {}), Reply(404, {}))
    for stream in (client.generate(TextSession([1]), {}), client.stream("s", 1)):
        with pytest.raises(RequestError):
            next(stream)
    assert transport.timeouts == [10.0, 10.0]


def test_an_error_in_the_stream_is_raised(verifier: Verifier) -> None:
    with closing(VerifierClient(verifier.url)) as client, pytest.raises(RequestError, match="vocabulary"):
        list(client.generate(TextSession([999_999]), {}))
    body = json.dumps(Overloaded("full").body()).encode()

    class Failing(Canned):
        def stream(self, *_: Any) -> Any:
            yield "tokens", {"tokens": [1]}
            yield "error", json.loads(body)

    client = VerifierClient("http://v", transport=Failing())
    with pytest.raises(Overloaded, match="full"):
        list(client.generate(TextSession([1]), {}))


def test_a_release_waits_two_seconds_at_most_and_is_not_asked_again_in_silence() -> None:
    client, transport, _ = _client(VerifierTimeout("sent nothing for 2 s"))
    with released(client, TextSession([1, 2], opened=True)):
        pass  # a frozen verifier does not hold up whoever ends the text
    assert [method for method, _ in transport.asked] == ["DELETE"] and transport.timeouts == [2.0]
