"""Responses that no verifier sends: each raises BadReply with one sentence that names the address and the field."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from math import inf, nan
from typing import Any

import httpx
import pytest

from backends.scripted import ByteVocabulary
from drafter_client.errors import BadReply, ConnectionLost
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import RemoteVocabulary, check_vocabulary
from drafter_client.http.responses import StreamedTokens, StreamEnd
from speculation.policy.schedule import LOCKSTEP, Mechanisms
from tests.drafter_client.http.fake_transports import Canned, reply, streamed
from tests.drafter_client.support import ALL, PROMPT, WAITING, Scenario, generate

BYTES = ByteVocabulary()
TIMING = {"queue_ms": 0.5, "forward_ms": 1.5, "sessions": 1}
SURROGATE = "\ud800"  # JSON can hold a lone surrogate, UTF-8 cannot
HUGE = 10**400  # too large for a float
NOT_IDS: list[Any] = [None, 5, "abc", {}, ["a"], [5.5], [None], [True], [inf], [-1], [[5]]]
NOT_TIMES: list[Any] = [None, "a", [], True, nan, inf, -1, -0.5, HUGE]
NOT_COUNTS: list[Any] = [None, "a", [], True, 1.0, nan, -1, HUGE]
DECISION: dict[str, Any] = {"token": 65, "p": 0.5, "draft": 65, "draft_p": 0.5, "q": None, "drawn": 0.1}
DECISION |= {"verdict": "accepted"}
HONEST: dict[str, Any] = {
    "/model": {
        "model": "honest",
        "context_length": 1024,
        "max_draft_tokens": 8,
        "pass_ms": [1.0, 1.5],
        "self_continue": True,
        "vocabulary": {**asdict(BYTES.fingerprint), "ends": list(BYTES.fingerprint.ends)},
        "chat_template": None,
    },
    "/vocabulary": {
        "begin": BYTES.begin,
        "ends": sorted(BYTES.ends),
        "kinds": "".join(str(int(kind)) for kind in BYTES.kinds),
        "pieces": [piece.decode("latin-1") for piece in BYTES.pieces],
    },
    "/tokenize": {"token_ids": [65, 66]},
    "/prefill": {"prompt_ids": PROMPT, "tokens": [65], "finish_reason": None, "sampling": {}, "timing": TIMING},
    "/verify": {
        "accepted_prefix_len": 1,
        "judged": 2,
        "tokens": [65, 66],
        "finish_reason": None,
        "timing": TIMING,
    },
}
ASK: dict[str, Callable[[VerifierClient], Any]] = {
    "/model": lambda client: client.model(),
    "/vocabulary": lambda client: RemoteVocabulary(client, client.model()),
    "/tokenize": lambda client: RemoteVocabulary(client, client.model()).encode("AB"),
    "/prefill": lambda client: client.prefill(TextSession(PROMPT), {}),
    "/verify": lambda client: client.verify("s", 10, [65, 67]),
}
MODEL = [
    *(("/model", "context_length", value, "context_length is") for value in [*NOT_COUNTS, 0]),
    *(("/model", "max_draft_tokens", value, "max_draft_tokens is") for value in NOT_COUNTS),
    *(("/model", "pass_ms", value, "pass_ms is not a list of times") for value in [None, 5, "abc", {}]),
    *(("/model", "pass_ms", [1.0, value], r"pass_ms\[1\] is not a time in milliseconds") for value in NOT_TIMES),
    *(("/model", "self_continue", value, "self_continue is neither true nor false") for value in [None, 1, "true"]),
    *(("/model", "model", value, "model is not text") for value in [None, 5, [], SURROGATE]),
    *(("/model", "chat_template", value, "chat_template is not text") for value in [5, [], SURROGATE]),
]
FINGERPRINT = [
    *(("/model", "vocabulary", value, "vocabulary is not an object") for value in [None, 5, [], "abc"]),
    *(("/model", "vocabulary.size", value, "vocabulary.size is") for value in [*NOT_COUNTS, 0]),
    *(("/model", "vocabulary.below", value, "vocabulary.below is") for value in [*NOT_COUNTS, 259]),
    *(("/model", "vocabulary.begin", value, "vocabulary.begin is") for value in ["a", 1.0, -1, 258]),
    *(("/model", "vocabulary.ends", value, "vocabulary.ends is not a list of token ids") for value in NOT_IDS),
    ("/model", "vocabulary.ends", [258], "vocabulary.ends holds 258, and the vocabulary has 258 ids"),
    *(("/model", "vocabulary.ordinary", value, "vocabulary.ordinary is not text") for value in [None, 5]),
    *(("/model", "vocabulary.control", value, "vocabulary.control is not text") for value in [None, 5]),
]
VOCABULARY = [
    *(("/vocabulary", "pieces", value, "pieces is not a list of strings") for value in [None, 5, "ab"]),
    *(("/vocabulary", "pieces", value, "pieces is not a list of strings of bytes") for value in [[7], ["\u20ac"]]),
    ("/vocabulary", "pieces", [], "kinds is not one digit for each of the pieces"),
    *(("/vocabulary", "kinds", value, "kinds is not text") for value in [None, 5, []]),
    *(("/vocabulary", "kinds", value, "kinds is not one digit for each") for value in ["0", "3" * 258, "\u0661" * 258]),
    *(("/vocabulary", "begin", value, "begin is") for value in ["a", 1.0, -1, 258]),
    *(("/vocabulary", "ends", value, "ends is not a list of token ids") for value in [*NOT_IDS, [1, "a"]]),
    ("/vocabulary", "ends", [258], "ends holds 258, and the vocabulary has 258 ids"),
    *(("/tokenize", "token_ids", value, "token_ids is not a list of token ids") for value in NOT_IDS),
    ("/tokenize", "token_ids", [65, 258], "token_ids holds 258, and the vocabulary has 258 ids"),
]
TEXT = [
    *(("/prefill", "prompt_ids", value, "prompt_ids is not a list of token ids") for value in NOT_IDS),
    ("/prefill", "prompt_ids", PROMPT[1:], "prompt_ids is not what was sent"),
    *(("/prefill", "tokens", value, "tokens is not a list of token ids") for value in NOT_IDS),
    ("/prefill", "tokens", [], "tokens is empty"),
    *(("/prefill", "sampling", value, "sampling is not an object") for value in [None, 5, []]),
    ("/prefill", "sampling", {"temperature": "warm"}, "sampling.temperature is not a number"),
    ("/prefill", "sampling", {"strategy": ["x"]}, "sampling.strategy is neither a number nor a name"),
    ("/prefill", "sampling", {"\x1b": None}, r"sampling.\\x1b is neither a number nor a name"),
    *(("/verify", "tokens", value, "tokens is not a list of token ids") for value in NOT_IDS),
    ("/verify", "tokens", [], "tokens is empty, and the text has not ended"),
    *(("/verify", "accepted_prefix_len", value, "accepted_prefix_len is") for value in [*NOT_COUNTS, 3]),
    *(("/verify", "judged", value, "judged is") for value in [*NOT_COUNTS, 3]),
    *(("/verify", "timing.sessions", value, "timing.sessions is") for value in NOT_COUNTS),
    *(("/verify", "decisions", value, "decisions is not a list of objects") for value in [5, "abc", {}]),
    ("/verify", "decisions", [DECISION], "decisions are not on the tokens"),
    ("/verify", "decisions", [DECISION, DECISION], "decisions are not on the tokens"),
    *(
        ("/verify", "decisions", [DECISION, {**DECISION, "token": 66, name: value}], rf"decisions\[1\].{name} is")
        for name, value in [
            ("p", None),
            ("p", 1.5),
            ("p", "0.5"),
            ("draft", "a"),
            ("draft", -1),
            ("draft_p", 2),
            ("q", -0.5),
            ("drawn", nan),
            ("verdict", "maybe"),
            ("verdict", None),
        ]
    ),
]
EITHER = [
    lie
    for path in ("/prefill", "/verify")
    for lie in [
        *((path, "finish_reason", value, "finish_reason is neither null nor stop nor length") for value in [5, "", []]),
        (path, "finish_reason", "banana", "finish_reason is neither null nor stop nor length"),
        *((path, "timing", value, "timing is not an object") for value in [None, 5, []]),
        *((path, "timing.queue_ms", value, "timing.queue_ms is not a time in milliseconds") for value in NOT_TIMES),
        *((path, "timing.forward_ms", value, "timing.forward_ms is not a time in milliseconds") for value in NOT_TIMES),
    ]
]


class _Small(ByteVocabulary):
    """The first 200 ids only."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces, self.kinds = self.pieces[:200], self.kinds[:200]


class Pretender(httpx.MockTransport):
    """Answers each path from `replies` and streams `events`; a POST to another path waits until they were read."""

    def __init__(self, replies: dict[str, Any], events: Iterator[tuple[str, Any]] = iter(())) -> None:
        super().__init__(self._answer)
        self._replies, self._events, self._over = replies, events, threading.Event()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/stream"):
            return streamed(self._read())
        if path not in self._replies and request.method == "POST":
            assert self._over.wait(10.0)
            raise ConnectionLost("aborted")
        return reply(200, self._replies.get(path, {}))

    def _read(self) -> Iterator[tuple[str, Any]]:
        yield from self._events
        self._over.set()


def _altered(path: str, name: str, value: Any) -> dict[str, Any]:
    """The honest responses, with one field changed."""
    outer, _, inner = name.rpartition(".")
    body = dict(HONEST[path])
    if outer:
        body[outer] = {**body[outer], inner: value}
    else:
        body[inner] = value
    return {**HONEST, path: body}


def _client(replies: dict[str, Any]) -> VerifierClient:
    return VerifierClient("http://v", transport=Pretender(replies))


@pytest.mark.parametrize("path", ASK)
def test_an_honest_response_is_read(path: str) -> None:
    ASK[path](_client(HONEST))


@pytest.mark.parametrize("path", ASK)
@pytest.mark.parametrize("body", [None, [], "abc", 5, nan], ids=str)
def test_a_response_that_is_no_object_is_refused(path: str, body: Any) -> None:
    with pytest.raises(BadReply, match=f"^http://v{path}: the response is not an object: is it a verifier\\?$"):
        ASK[path](_client({**HONEST, path: body}))


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, body in HONEST.items() for name in body])
def test_every_missing_field_is_named(path: str, name: str) -> None:
    body = {other: value for other, value in HONEST[path].items() if other != name}
    with pytest.raises(BadReply, match=f"^http://v{path}: {name} is missing: is it a verifier\\?$"):
        ASK[path](_client({**HONEST, path: body}))


@pytest.mark.parametrize(("path", "name", "value", "words"), [*MODEL, *FINGERPRINT, *VOCABULARY, *TEXT, *EITHER])
def test_every_wrong_field_is_named(path: str, name: str, value: Any, words: str) -> None:
    with pytest.raises(BadReply, match=f"^http://v{path}: {words}.*: is it a verifier\\?$"):
        ASK[path](_client(_altered(path, name, value)))


def test_unknown_fields_of_a_later_version_are_ignored() -> None:
    for path, ask in ASK.items():
        ask(_client(_altered(path, "colour", "red")))
    assert _client(_altered("/model", "vocabulary.colour", "red")).model().name == "honest"


def test_a_verify_after_the_end_may_have_no_tokens() -> None:
    told = {"accepted_prefix_len": 0, "judged": 0, "tokens": [], "finish_reason": "stop", "timing": TIMING}
    assert _client({"/verify": told}).verify("s", 10, [65, 66]).finish_reason == "stop"
    with pytest.raises(BadReply, match="accepted_prefix_len is 1, not 0 to 0"):
        _client({"/verify": {**told, "accepted_prefix_len": 1}}).verify("s", 10, [65, 66])


def test_fingerprints_must_cover_the_ids_that_were_requested() -> None:
    """Else fingerprints over different numbers of ids would be compared."""
    padded = _altered("/model", "vocabulary.size", 300)
    with pytest.raises(BadReply, match=r"/model\?below=200: vocabulary\.below is 258 where 200 was asked for"):
        check_vocabulary(_client(padded), _Small(), "draft")


def test_progress_that_is_no_share_is_refused() -> None:
    for progress in ("abc", nan, 7, [], -1):
        client = VerifierClient(
            "http://v", transport=Canned(reply(503, {"status": "loading", "progress": progress})), sleep=lambda _: None
        )
        with pytest.raises(BadReply, match="http://v/health: progress is not a number from 0 to 1"):
            client.wait_until_ready(on_wait=lambda _: None)


def _pushed(position: int, tokens: Any, **more: Any) -> tuple[str, Any]:
    return "tokens", {"position": position, "tokens": tokens, "own": True, "forward_ms": 1.0, **more}


def _end(total: Any, reason: Any) -> tuple[str, Any]:
    return "end", {"total_tokens": total, "finish_reason": reason}


STREAMS = [
    ([_pushed(100, [65])], "position is 100 where 10 is due"),
    ([_pushed(10, [65, 66]), _pushed(11, [66])], "position is 11 where 12 is due"),
    *(([_pushed(value, [65])], "position is") for value in NOT_COUNTS),
    ([_pushed(10, [])], "tokens is empty"),
    *(([_pushed(10, value)], "tokens is not a list of token ids") for value in NOT_IDS),
    *(([_pushed(10, [65], own=value)], "own is neither true nor false") for value in [None, 1]),
    *(([_pushed(10, [65], forward_ms=value)], "forward_ms is not a time in milliseconds") for value in NOT_TIMES[1:]),
    ([_pushed(10, [65]), _end(100, "length")], "total_tokens is 100 where 11 tokens were told"),
    ([_end(None, "length")], "total_tokens is not a whole number"),
    ([_end(10, None)], "finish_reason is null at the end"),
    *(([_end(10, value)], "finish_reason is neither null nor stop nor length") for value in [5, "banana"]),
    ([("tokens", [])], "the response is not an object"),
    ([("end", None)], "the response is not an object"),
]


@pytest.mark.parametrize(("events", "words"), STREAMS)
def test_every_wrong_event_is_named(events: list[tuple[str, Any]], words: str) -> None:
    client = VerifierClient("http://v", transport=Pretender({}, iter(events)))
    with pytest.raises(BadReply, match=f"^http://v/sessions/…/stream: {words}.*: is it a verifier\\?$"):
        list(client.stream("s", 10))


def test_an_honest_stream_is_read_to_its_end() -> None:
    client = VerifierClient("http://v", transport=Pretender({}, iter([_pushed(10, [65, 66]), _end(12, "stop")])))
    told = client.stream("s", 10)
    assert next(told) == StreamedTokens(10, [65, 66], target_decoded=True, forward_ms=1.0)
    assert next(told) == StreamEnd("stop")


def _generate(
    replies: dict[str, Any], mechanisms: Mechanisms, events: Iterator[tuple[str, Any]] = iter(()), **options: Any
) -> None:
    """Generate a text with a server of these responses, on every connection."""
    client = VerifierClient("http://v", transport=Pretender(replies, events))
    with closing(client):
        generate(client, Scenario(lambda tokens: 65), 2, mechanisms=mechanisms, **options)


def _response(tokens: list[int], finish_reason: str | None = None) -> dict[str, Any]:
    told = {"accepted_prefix_len": 0, "judged": 0, "tokens": tokens, "finish_reason": finish_reason, "timing": TIMING}
    return {**HONEST, "/verify": told}


@pytest.mark.parametrize("mechanisms", [LOCKSTEP, WAITING], ids=["lockstep", "overlapped"])
@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([], "/verify: tokens is empty, and the text has not ended"),
        ([5], f"/verify: the text has {len(PROMPT) + 7} tokens, at most {len(PROMPT) + 6} were asked for"),
        ([5] * 5000, f"/verify: the text has {len(PROMPT) + 5001} tokens, at most {len(PROMPT) + 6} were asked for"),
        ([5, 258], "/verify: a token is 258, and the vocabulary has 258 ids"),
    ],
)
def test_a_text_that_exceeds_its_bounds_is_given_up(mechanisms: Mechanisms, tokens: list[int], words: str) -> None:
    with pytest.raises(BadReply, match=f"^http://v{words}: is it a verifier\\?$"):
        _generate(_response(tokens), mechanisms, max_tokens=6)


def test_without_max_tokens_the_context_is_the_bound() -> None:
    with pytest.raises(BadReply, match="/verify: the text has 1025 tokens, at most 1024 were asked for"):
        _generate(_response([5]), LOCKSTEP)


@pytest.mark.parametrize("mechanisms", [LOCKSTEP, WAITING, ALL], ids=["lockstep", "overlapped", "all"])
@pytest.mark.parametrize(
    ("tokens", "words"), [([99999], "a token is 99999"), ([5] * 7, "the text has"), ([-1], "tokens is not a list")]
)
def test_a_prefill_that_exceeds_the_bounds_is_given_up(mechanisms: Mechanisms, tokens: list[int], words: str) -> None:
    with pytest.raises(BadReply, match=f"^http://v/prefill: {words}"):
        _generate(_altered("/prefill", "tokens", tokens), mechanisms, max_tokens=6)


def _endless(start: int) -> Iterator[tuple[str, Any]]:
    while True:
        yield _pushed(start, [65])
        start += 1


NEXT = len(PROMPT) + 1


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (lambda: iter([_pushed(NEXT, [65] * 5000)]), f"the text has {NEXT + 5000} tokens, at most {NEXT + 5}"),
        (lambda: _endless(NEXT), f"the text has {NEXT + 6} tokens, at most {NEXT + 5}"),
        (lambda: iter([_pushed(NEXT, [258])]), "a token is 258, and the vocabulary has 258 ids"),
        (lambda: iter([_pushed(NEXT, [-1])]), "tokens is not a list of token ids"),
        (lambda: iter([_pushed(100, [65]), _end(101, "length")]), f"position is 100 where {NEXT} is due"),
        (lambda: iter([_end(100, "length")]), f"total_tokens is 100 where {NEXT} tokens were told"),
    ],
)
def test_a_wrong_stream_ends_the_run(events: Callable[[], Iterator[tuple[str, Any]]], words: str) -> None:
    silent = {path: body for path, body in HONEST.items() if path != "/verify"}  # so that only the stream answers
    with pytest.raises(BadReply, match=f"^http://v/sessions/…/stream: {words}"):
        _generate(silent, ALL, events(), max_tokens=6)


def test_a_verifier_without_a_vocabulary_path_is_reported_as_too_old() -> None:
    missing = [reply(404, None), reply(404, {"error": {"code": "not_found", "message": "there is nothing here"}})]
    words = "this verifier is too old for --backend ngram and --translate: update it, or draft with a model of its"
    for answer in missing:
        model, vocabulary = (reply(200, HONEST[path]) for path in ("/model", "/vocabulary"))
        client = VerifierClient("http://v", transport=Canned(model, answer))
        with pytest.raises(BadReply, match=rf"^what answers at http://v has no /vocabulary \(.*\): {words} family$"):
            RemoteVocabulary(client, client.model())
        client = VerifierClient("http://v", transport=Canned(model, vocabulary, answer))
        with pytest.raises(BadReply, match=rf"^what answers at http://v has no /tokenize \(.*\): {words} family$"):
            RemoteVocabulary(client, client.model()).encode("a")
