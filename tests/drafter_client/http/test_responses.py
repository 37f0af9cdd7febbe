"""Responses that no verifier sends: each raises BadReply with one sentence that names the address and the field."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from math import inf, nan
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import ByteVocabulary
from drafter_client.errors import BadReply, ConnectionLost
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import RemoteVocabulary, check_vocabulary
from drafter_client.http.responses import read
from drafter_client.http.text_session import ResponseBounds, TextSession
from specpair.protocol.responses import VerifyResponse
from specpair.protocol.service_responses import TokenizeResponse, VocabularyResponse
from specpair.speculation.acceptance.judge import Decision
from specpair.speculation.acceptance.token_sources import TokenDetails, split
from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.distribution import TokenLogprobs
from specpair.speculation.text_options import TextSpec
from tests.drafter_client.http.fake_transports import Canned, body, model_info, prefilled, reply, streamed, verified
from tests.drafter_client.support import ALL, PROMPT, WAITING, Scenario, generate
from tests.specpair.protocol.drawn import RESPONSES

BYTES = ByteVocabulary()
SURROGATE = "\ud800"  # JSON can hold a lone surrogate, UTF-8 cannot
HUGE = 10**400  # too large for a float
NOT_IDS: list[Any] = [None, 5, "abc", {}, ["a"], [5.5], [None], [True], [inf], [-1], [[5]]]
NOT_TIMES: list[Any] = [None, "a", [], True, nan, inf, -1, -0.5, HUGE]
NOT_COUNTS: list[Any] = [None, "a", [], True, 1.0, nan, -1, HUGE]
DECISION: dict[str, Any] = {"token": 65, "p": 0.5, "draft": 65, "draft_p": 0.5, "q": None, "drawn": 0.1}
DECISION |= {"verdict": "accepted"}
HONEST: dict[str, dict[str, Any]] = {
    "/model": body(model_info()),
    "/vocabulary": body(
        VocabularyResponse(
            size=BYTES.size,
            begin=BYTES.begin,
            ends=sorted(BYTES.ends),
            end=BYTES.end,
            kinds="".join(str(int(kind)) for kind in BYTES.kinds),
            pieces=[piece.decode("latin-1") for piece in BYTES.pieces],
        )
    ),
    "/tokenize": body(TokenizeResponse(token_ids=[65, 66])),
    "/prefill": body(prefilled(PROMPT, [65])),
    "/verify": body(verified([65, 66], 1, 2)),
}
ASK: dict[str, Callable[[VerifierClient], Any]] = {
    "/model": lambda client: client.model(),
    "/vocabulary": lambda client: RemoteVocabulary(client, client.model()),
    "/tokenize": lambda client: RemoteVocabulary(client, client.model()).encode("AB"),
    "/prefill": lambda client: client.prefill(TextSession(PROMPT), {}),
    "/verify": lambda client: client.verify("s", Draft.chain(10, [65, 67])),
}
LIES: list[tuple[str, str, Any, str]] = [  # values that no verifier sends, and what the error says
    ("/model", "context_length", 0, "context_length should "),
    ("/model", "pass_ms", [1.0, nan], r"pass_ms\.1 should "),
    ("/model", "model", "x" * 1001, "model should "),
    ("/model", "model", SURROGATE, "the response is not JSON"),
    ("/model", "vocabulary.size", "a", r"vocabulary\.size should "),
    *(
        ("/model", f"vocabulary.{name}", value, "vocabulary has 258 ids, but names others")
        for name, value in [("below", 259), ("begin", 258), ("ends", [258]), ("ends", [-1])]
    ),
    ("/vocabulary", "pieces", ["\u20ac"], r"pieces\.0 should "),
    ("/vocabulary", "pieces", [], "kinds must be one digit for each piece"),
    ("/vocabulary", "kinds", "3" * 258, "kinds should "),
    ("/vocabulary", "kinds", "0", "kinds must be one digit for each piece"),
    *(("/tokenize", "token_ids", value, r"token_ids(\.0)? should ") for value in NOT_IDS),
    ("/tokenize", "token_ids", [65, 258], "token_ids holds 258, but the vocabulary has 258 ids"),
    ("/prefill", "prompt_ids", PROMPT[1:], "prompt_ids differs from the request"),
    ("/prefill", "tokens", [], "tokens is empty"),
    ("/prefill", "position", 1, f"position is 1, expected {len(PROMPT)}"),
    ("/prefill", "sampling.strategy", "guessing", r"sampling\.strategy should "),
    ("/verify", "tokens", [], "tokens is empty, but the text has not ended"),
    ("/verify", "position", 9, "position is 9, expected 10"),
    *(("/verify", "judged", value, "judged should ") for value in NOT_COUNTS),
    *((("/verify", name, 3, f"{name} is 3, not 0 to 2")) for name in ("accepted_prefix_len", "judged", "unjudged")),
    ("/verify", "decisions", [DECISION, {**DECISION, "verdict": "maybe"}], r"decisions\.1\.verdict should "),
    ("/verify", "finish_reason", "banana", "finish_reason should "),
    *(("/verify", "timing.queue_ms", value, r"timing\.queue_ms should ") for value in NOT_TIMES),
]


class _Small(ByteVocabulary):
    """The first 200 ids only."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces, self.kinds = self.pieces[:200], self.kinds[:200]


class Pretender(httpx.MockTransport):
    """Answers each path from `replies`, bodies or functions of the request, and streams `events`.

    A POST to another path waits until the stream is closed."""

    def __init__(self, replies: dict[str, Any], events: Iterator[tuple[str, Any]] = iter(())) -> None:
        super().__init__(self._answer)
        self._replies, self._events, self._over = replies, events, threading.Event()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/stream"):
            stream = streamed(self._events)
            stream.stream.close = self._over.set  # type: ignore[method-assign, union-attr]
            return stream
        if path not in self._replies and request.method == "POST":
            assert self._over.wait(10.0)
            raise ConnectionLost("aborted")
        answer = self._replies.get(path, {})
        return reply(200, answer(json.loads(request.content)) if callable(answer) else answer)


def _altered(path: str, name: str, value: Any) -> dict[str, Any]:
    """The honest responses, with one field changed."""
    outer, _, inner = name.rpartition(".")
    told = dict(HONEST[path])
    if outer:
        told[outer] = {**told[outer], inner: value}
    else:
        told[inner] = value
    return {**HONEST, path: told}


def _client(replies: dict[str, Any]) -> VerifierClient:
    return VerifierClient("http://v", transport=Pretender(replies))


@pytest.mark.parametrize(
    ("path", "name"), [(path, name) for path, told in HONEST.items() for name in told if name != "end"]
)  # a verifier that was there before it does not tell `end`
def test_every_missing_field_is_named(path: str, name: str) -> None:
    told = {other: value for other, value in HONEST[path].items() if other != name}
    with pytest.raises(BadReply, match=f"^http://v{path}: {name} is missing: is it a verifier\\?$"):
        ASK[path](_client({**HONEST, path: told}))


@pytest.mark.parametrize(("path", "name", "value", "words"), LIES)
def test_every_wrong_field_is_named(path: str, name: str, value: Any, words: str) -> None:
    with pytest.raises(BadReply, match=f"^http://v{path}: {words}.*: is it a verifier\\?$"):
        ASK[path](_client(_altered(path, name, value)))


def test_a_verify_after_the_end_may_have_no_tokens() -> None:
    told = body(verified([], finish_reason="stop"))
    assert _client({"/verify": told}).verify("s", Draft.chain(10, [65, 66])).finish_reason == "stop"
    with pytest.raises(BadReply, match="accepted_prefix_len is 1, not 0 to 0"):
        _client({"/verify": {**told, "accepted_prefix_len": 1}}).verify("s", Draft.chain(10, [65, 66]))


def test_fingerprints_must_cover_the_ids_that_were_requested() -> None:
    """Else fingerprints over different numbers of ids would be compared."""
    padded = _altered("/model", "vocabulary.size", 300)
    with pytest.raises(BadReply, match=r"/model\?below=200: vocabulary\.below is 258, expected 200"):
        check_vocabulary(_client(padded), _Small(), "draft")


def _pushed(position: int, tokens: Any, **more: Any) -> tuple[str, Any]:
    sources = "t" * len(tokens) if isinstance(tokens, list) else ""
    return "tokens", {
        "position": position,
        "tokens": tokens,
        "sources": sources,
        "own": True,
        "forward_ms": 1.0,
        **more,
    }


def _end(total: Any, reason: Any) -> tuple[str, Any]:
    return "end", {"total_tokens": total, "finish_reason": reason}


STREAMS = [
    ([_pushed(100, [65])], "position is 100, expected 10"),
    ([_pushed(10, [65, 66]), _pushed(11, [66])], "position is 11, expected 12"),
    ([_pushed(10, [])], "tokens is empty"),
    ([_pushed(10, ["a"])], r"tokens\.0 should "),
    ([_pushed(10, [65], sources="q")], "sources "),
    ([_pushed(10, [65], own=None)], "own should be a valid boolean"),
    ([_pushed(10, [65]), _end(100, "length")], "total_tokens is 100, expected 11"),
    ([_end(10, "banana")], "finish_reason should be 'stop' or 'length'"),
    ([("tokens", [])], "the response should be an object"),
]


@pytest.mark.parametrize(("events", "words"), STREAMS)
def test_every_wrong_event_is_named(events: list[tuple[str, Any]], words: str) -> None:
    client = VerifierClient("http://v", transport=Pretender({}, iter(events)))
    with pytest.raises(BadReply, match=f"^http://v/sessions/…/stream: {words}.*: is it a verifier\\?$"):
        list(client.stream("s", 10))


def _generate(
    replies: dict[str, Any], mechanisms: Mechanisms, events: Iterator[tuple[str, Any]] = iter(()), **options: Any
) -> None:
    """Generate a text with a server of these responses, on every connection."""
    client = VerifierClient("http://v", transport=Pretender(replies, events))
    with closing(client):
        generate(client, Scenario(lambda tokens: 65), 2, mechanisms=mechanisms, **options)


def _response(tokens: list[int]) -> dict[str, Any]:
    return {**HONEST, "/verify": lambda asked: body(verified(tokens, position=asked["position"]))}


@pytest.mark.parametrize("mechanisms", [LOCKSTEP, WAITING], ids=["lockstep", "overlapped"])
@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([], "/verify: tokens is empty, but the text has not ended"),
        ([5], f"/verify: the text has {len(PROMPT) + 7} tokens, at most {len(PROMPT) + 6} were requested"),
        ([5] * 5000, f"/verify: the text has {len(PROMPT) + 5001} tokens, at most {len(PROMPT) + 6} were requested"),
        ([5, 258], "/verify: a token is 258, but the vocabulary has 258 ids"),
    ],
)
def test_a_text_that_exceeds_its_bounds_is_given_up(mechanisms: Mechanisms, tokens: list[int], words: str) -> None:
    with pytest.raises(BadReply, match=f"^http://v{words}: is it a verifier\\?$"):
        _generate(_response(tokens), mechanisms, max_tokens=6)


@pytest.mark.parametrize("mechanisms", [LOCKSTEP, WAITING, ALL], ids=["lockstep", "overlapped", "all"])
@pytest.mark.parametrize(
    ("tokens", "words"), [([99999], "a token is 99999"), ([5] * 7, "the text has"), ([-1], "tokens.0 should be")]
)
def test_a_prefill_that_exceeds_the_bounds_is_given_up(mechanisms: Mechanisms, tokens: list[int], words: str) -> None:
    with pytest.raises(BadReply, match=f"^http://v/prefill: {words}"):
        _generate(_altered("/prefill", "tokens", tokens), mechanisms, max_tokens=6)


def test_a_server_without_a_vocabulary_path_is_no_verifier() -> None:
    missing = [reply(404, None), reply(404, {"error": {"code": "not_found", "message": "there is nothing here"}})]
    words = r"is it a verifier\?"
    for answer in missing:
        model, vocabulary = (reply(200, HONEST[path]) for path in ("/model", "/vocabulary"))
        client = VerifierClient("http://v", transport=Canned(model, answer))
        with pytest.raises(BadReply, match=rf"^what answers at http://v has no /vocabulary \(.*\): {words}$"):
            RemoteVocabulary(client, client.model())
        client = VerifierClient("http://v", transport=Canned(model, vocabulary, answer))
        with pytest.raises(BadReply, match=rf"^what answers at http://v has no /tokenize \(.*\): {words}$"):
            RemoteVocabulary(client, client.model()).encode("a")


BOUNDS = ResponseBounds("http://v", 258, 1000)


def test_decisions_and_logprobs_are_on_the_tokens() -> None:
    on_65, on_66 = (Decision(token, 0.5, None, None, None, None, "own") for token in (65, 66))
    of_65, of_66 = (TokenLogprobs(token, -0.5, [(token, -0.5)]) for token in (65, 66))
    told = TokenDetails(split("ab"), [on_65, on_66], [of_65, of_66])
    for bounds in (BOUNDS, replace(BOUNDS, spec=TextSpec(explain=True, logprobs=0))):
        assert bounds.details("/verify", [65, 66], told) == (split("ab"), [on_65, on_66], [of_65, of_66])
    assert BOUNDS.details("/verify", [65], TokenDetails(split("r"))) == (split("r"), None, None)
    for marks in ("", "b", "b-", "aab"):
        with pytest.raises(BadReply, match=r"^http://v/verify: sources is not one letter for each token, of this"):
            BOUNDS.details("/verify", [65, 66], TokenDetails(split(marks)))
    orders: list[list[int | None]] = [[0], [1, 0], [0, 1, 1], [0, None], []]
    for order in orders:
        decisions = [None if at is None else (on_65, on_66)[at] for at in order]
        with pytest.raises(BadReply, match=r"^http://v/verify: decisions are of other tokens: is it a verifier\?$"):
            BOUNDS.details("/verify", [65, 66], TokenDetails(split("ab"), decisions))
        logprobs = [None if at is None else (of_65, of_66)[at] for at in order]
        with pytest.raises(BadReply, match=r"^http://v/verify: logprobs are of other tokens: is it a verifier\?$"):
            BOUNDS.details("/verify", [65, 66], TokenDetails(split("ab"), None, logprobs))
    with pytest.raises(BadReply, match=r"^http://v/verify: decisions are missing, but were requested: is it"):
        replace(BOUNDS, spec=TextSpec(explain=True)).details("/verify", [65], TokenDetails(split("b")))
    with pytest.raises(BadReply, match=r"^http://v/verify: logprobs are missing, but were requested: is it"):
        # 0: of no other token, but of the committed one
        replace(BOUNDS, spec=TextSpec(logprobs=0)).details("/verify", [65], TokenDetails(split("b"), [on_65]))


JUNK = st.one_of(
    st.sampled_from([None, True, -1, 1.5, nan, inf, HUGE, "", "x\n\x1b", [], {}, {"\x1b": 1}, [[]], ["a"] * 1000]),
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ),
)


def _spoilt(data: st.DataObject, value: Any) -> Any:
    """`value` with junk in place of one part of it, or of the whole."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        return value | {key: _spoilt(data, value[key])}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], _spoilt(data, value[at]), *value[at + 1 :]]
    return data.draw(JUNK)


@pytest.mark.parametrize("name", RESPONSES)
@given(data=st.data())
def test_a_spoilt_response_is_read_or_refused_in_one_line(name: str, data: st.DataObject) -> None:
    honest = data.draw(RESPONSES[name])
    content = json.dumps(_spoilt(data, body(honest))).encode()
    try:
        read("http://v", type(honest), content)
    except BadReply as error:
        said = str(error)
        assert said.startswith("http://v: ") and said.endswith(": is it a verifier?")
        assert said.isprintable() and len(said) < 200


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"<html>", b'{"tokens":[', b"[" * 10**6, b'{"a":' * 10**6, b"1" * 10**6, b'"' + b"x" * 10**6],
    ids=lambda content: content[:10],
)
def test_what_is_no_json_is_refused(content: bytes) -> None:
    with pytest.raises(BadReply, match=r"^http://v: the response is not JSON: is it a verifier\?$"):
        read("http://v", TokenizeResponse, content)


HOSTILE = {
    "ids": b'{"tokens":[' + b"1," * 10**6 + b"1]}",
    "objects": b'{"tokens":[' + b"{}," * 10**6 + b"{}]}",
    "nested objects": b'{"timing":{"a":[' + b"{}," * 10**6 + b"{}]}}",
    "decisions": b'{"decisions":[' + b"{}," * 10**6 + b"{}]}",
    "keys": b'{"0":0' + b"".join(b',"%d":0' % key for key in range(10**6)) + b"}",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_long_response_is_refused_about_as_fast_as_it_is_parsed(content: bytes) -> None:
    def times_as_long() -> float:
        began = time.thread_time()
        json.loads(content)
        parsed = time.thread_time()
        with pytest.raises(BadReply, match="is it a verifier"):
            read("http://v", VerifyResponse, content)
        return (time.thread_time() - parsed) / (parsed - began)

    assert any(times_as_long() < 3.0 for _ in range(5)), "a busy machine disturbs some measurements, not all"
