"""The client: waits for a loading verifier, retries what is safe to repeat, and reports other errors plainly."""

import json
from contextlib import closing
from typing import Any

import httpx
import pytest

from drafter_client.errors import (
    BadKey,
    BadReply,
    BadUrl,
    ConnectionLost,
    DrafterError,
    VerifierTimeout,
    VerifierUnreachable,
)
from drafter_client.generation.resuming import released
from drafter_client.generation.speculative_decoding import RemoteConnection
from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import ResponseBounds, TextSession
from specpair.protocol.errors import (
    NotFound,
    Overloaded,
    RequestError,
    SpecPairError,
)
from specpair.protocol.responses import (
    GenerateOpenEvent,
    GenerateResponse,
    GenerateTokensEvent,
)
from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import RejectionPolicy
from tests.drafter_client.http.fake_transports import Canned, body, reply, streamed, verified
from tests.drafter_client.support import Verifier, serving
from tests.stand_ins.clock import Time

VERIFIED = body(verified([5, 6], position=3))
OTHER_MODELS: list[Any] = [{}, [], "hello", None, {"model": "x"}, {"model": "x", "vocabulary": "abc"}]
LOST = ConnectionLost("the connection broke")
AWAY = VerifierUnreachable("no verifier answers")


def _client(*answers: httpx.Response | Exception, **options: Any) -> tuple[VerifierClient, Canned, Time]:
    transport, time = Canned(*answers), Time()
    client = VerifierClient("http://v", transport=transport, sleep=time.sleep, clock=time.clock, **options)
    return client, transport, time


def _refusal(error: SpecPairError, retry_after: str | None = None) -> httpx.Response:
    return reply(error.status, error.body(), **({} if retry_after is None else {"Retry-After": retry_after}))


def _loading(progress: float) -> httpx.Response:
    return reply(503, {"status": "loading", "progress": progress})


def test_wait_until_ready_waits_for_loading_and_reports_progress() -> None:
    client, _, time = _client(_loading(0.1), _loading(0.6), reply(200, {"status": "ready"}))
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
    client, _, _ = _client(_loading(0.2), reply(503, {"status": "failed", "reason": "no such file: x.gguf"}))
    with pytest.raises(DrafterError, match=r"has failed: no such file: x\.gguf"):
        client.wait_until_ready()


def test_a_wrong_path_in_the_address_of_a_verifier_is_named() -> None:
    with (
        serving(wait=False) as verifier,
        closing(VerifierClient(f"{verifier.url}/foo/v2")) as client,
        pytest.raises(BadUrl, match=r"/foo/v2 has no /health: the path /foo/v2 .* is wrong: check --verifier"),
    ):
        client.wait_until_ready()


def test_another_drafter_whose_verifier_is_away_is_no_verifier() -> None:
    missing = _refusal(NotFound("there is nothing at /model"))
    client, _, _ = _client(reply(503, {"status": "verifier_away", "reason": "nothing answers"}), missing)
    with pytest.raises(BadReply, match=r"what answers at http://v has no /model \(.*\): is it a verifier"):
        client.wait_until_ready()


@pytest.mark.parametrize(
    "answer",
    [
        *(reply(200, body) for body in OTHER_MODELS),
        reply(200, {"model": "x", "vocabulary": {"ends": 3}}),
        reply(200, {"model": "x", "vocabulary": {"ends": [3], "colour": "red"}}),
        reply(404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}),
        _refusal(NotFound("there is nothing at /model")),
        reply(404, None),
    ],
)
def test_a_server_that_is_no_verifier_is_recognised_by_its_model(answer: httpx.Response) -> None:
    client, _, _ = _client(answer)
    with pytest.raises(BadReply, match=r"http://v.*/model.*is it"):
        client.model()


def test_the_key_is_sent_with_every_request_and_a_wrong_key_is_reported() -> None:
    with serving(api_key="sesame") as verifier:
        with closing(VerifierClient(verifier.url, api_key="sesame")) as client:
            assert client.model().name == "scripted-1"
            opened = client.prefill(TextSession([1, 2]), {"max_tokens": 3})
            client.verify(opened.session_id, Draft.chain(3, []))
            with released(client, TextSession([1, 2])) as text:
                events = [type(event) for event in client.generate(text, {"max_tokens": 2})]
            assert events == [GenerateOpenEvent, GenerateTokensEvent, GenerateTokensEvent, GenerateResponse]
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
    busy = _refusal(Overloaded("all sessions are taken"), "2")
    client, transport, time = _client(busy, busy, reply(200, VERIFIED))
    assert client.verify("s", Draft.chain(3, [5, 7])).tokens == [5, 6]
    assert time.slept == [2.0, 2.0] and len(transport.asked) == 3


def test_a_lost_connection_is_reopened_after_growing_pauses() -> None:
    client, transport, time = _client(LOST, AWAY, LOST, reply(200, VERIFIED))
    assert client.verify("s", Draft.chain(3, [5, 7])).tokens == [5, 6]
    assert transport.asked == [("POST", "/verify")] * 4
    assert time.slept == [0.1, 0.2, 0.4]


def test_a_timeout_is_not_retried_which_would_double_the_load() -> None:
    client, transport, time = _client(VerifierTimeout("sent nothing"))
    with pytest.raises(VerifierTimeout):
        client.prefill(TextSession([1]), {})
    assert len(transport.asked) == 1 and time.slept == []


def test_the_client_makes_a_long_session_id_and_sends_it_from_the_first_request() -> None:
    lost = [VerifierTimeout("x")] * 2
    client, transport, _ = _client(*lost, reply(200, VERIFIED), reply(200, {"session_id": "abc", "deleted": True}))
    for _ in lost:
        with pytest.raises(VerifierTimeout):
            client.prefill(TextSession([1]), {})
    client.verify("abc", Draft.chain(3, []))
    client.release("abc")
    first, second, *others = (request.headers["X-Session-Id"] for request in transport.requests)
    assert first != second and len(first) == len(second) == 16 and others == ["abc", "abc"]


def test_a_verify_request_has_next_in_ms_and_self_continue_where_given() -> None:
    client, transport, _ = _client(*(reply(200, body(verified([5], position=position))) for position in (3, 4, 4, 4)))
    client.verify("s", Draft.chain(3, [5, 7]))
    client.verify("s", Draft.chain(4, []), RejectionPolicy(next_in=0.012345))
    client.verify("s", Draft.chain(4, [6]), RejectionPolicy(False, 0.012345))
    client.verify("s", Draft.chain(4, [6]), RejectionPolicy(True))
    first, second, third, last = map(json.loads, transport.bodies)
    assert first == {"position": 3, "draft_tokens": [5, 7]}
    assert second == {"position": 4, "draft_tokens": [], "next_in_ms": 12.3}
    assert third == {"position": 4, "draft_tokens": [6], "next_in_ms": 12.3, "self_continue": False}
    assert last == {"position": 4, "draft_tokens": [6], "self_continue": True}


def test_a_tree_has_parents_and_goes_only_to_a_verifier_that_takes_trees() -> None:
    client, transport, _ = _client(*[reply(200, body(verified([5], position=3)))] * 3)
    tree = Draft.chain(3, [5, 6, 7, 8]).with_parents([1, 2, 2, 2])
    client.verify("s", tree)
    bounds = ResponseBounds(client.url, 258, 1000)
    RemoteConnection(client, "s", bounds, trees=True).verify(tree)
    RemoteConnection(client, "s", bounds).verify(tree)
    first, second, third = transport.bodies
    assert json.loads(first) == {"position": 3, "draft_tokens": [5, 6, 7, 8], "draft_parents": [1, 2, 2, 2]}
    assert second == first
    assert third == b'{"position":3,"draft_tokens":[5,7]}', "the chain of those that stand first"


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), ("Wed, 21 Oct 2015 07:28:00 GMT", None), ("-1", None), ("\u00b2", None)]
)
def test_retry_after_is_read_where_it_is_a_number_of_seconds(header: str, seconds: float | None) -> None:
    client, _, _ = _client()
    busy = httpx.Response(503, json=Overloaded("full").body(), headers=[(b"Retry-After", header.encode("latin-1"))])
    error = client.refusal(busy)
    assert isinstance(error, Overloaded) and error.details.get("retry_after") == seconds


def test_ten_seconds_of_silence_end_a_stream() -> None:
    """A verifier sends at least a comment every three."""
    client, transport, _ = _client(reply(404, {}), reply(404, {}))
    for stream in (client.generate(TextSession([1]), {}), client.stream("s", 1)):
        with pytest.raises(RequestError):
            next(stream)
    assert transport.timeouts == [10.0, 10.0]


def test_an_error_in_the_stream_is_raised(verifier: Verifier) -> None:
    with closing(VerifierClient(verifier.url)) as client, pytest.raises(RequestError, match="vocabulary"):
        list(client.generate(TextSession([999_999]), {}))
    client, _, _ = _client(
        streamed(
            [
                ("tokens", {"position": 1, "tokens": [1], "sources": "b", "text": "a"}),
                ("error", Overloaded("full").body()),
            ]
        )
    )
    with pytest.raises(Overloaded, match="full"):
        list(client.generate(TextSession([1]), {}))


def test_a_release_waits_two_seconds_at_most_and_is_not_asked_again_in_silence() -> None:
    client, transport, _ = _client(VerifierTimeout("sent nothing for 2 s"))
    with released(client, TextSession([1, 2], opened=True)):
        pass  # a frozen verifier does not hold up whoever ends the text
    assert [method for method, _ in transport.asked] == ["DELETE"] and transport.timeouts == [2.0]
