"""`committed_ids`: a text continues after the tokens its reader has, whether or not the verifier knows its session."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from backends.scripted import END, Script, ScriptedBackend
from specpair.engines.backend import Entry, Logits
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.conftest import LiveServer, Serve, settings
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import read_events, slots_free, until

SCRIPT = Script(seed=2, support=40)
PROMPT = [256, *range(30)]
LENGTH = 30
WARM = Sampling(seed=5, temperature=0.8)
TEXT = plain(SCRIPT, PROMPT, LENGTH, WARM)
ARGMAX = plain(SCRIPT, PROMPT, LENGTH)
BODY = {"prompt_ids": PROMPT, "max_tokens": LENGTH, "seed": WARM.seed, "temperature": WARM.temperature}
CUTS = range(LENGTH + 1)


class Slow(ScriptedBackend):
    """A backend that stops before a given pass, sets `stopped`, and waits for `gate`."""

    def __init__(self, **limits: Any) -> None:
        self.stops_at = -1
        self.stopped, self.gate = threading.Event(), threading.Event()
        super().__init__(SCRIPT, **limits)

    def stop_in(self, passes: int) -> None:
        self.stopped.clear()
        self.gate.clear()
        self.stops_at = self.passes + passes

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.passes == self.stops_at:
            self.stopped.set()
            assert self.gate.wait(20)
        return super()._forward(batch)


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    """A verifier with two KV cache slots, so that sessions have to share."""
    draft = ScriptedBackend(Script(seed=2, agreement=0.6, support=40), slots=2)
    live = LiveServer(settings(), ScriptedBackend(SCRIPT, slots=2, max_batch_tokens=64), draft=draft)
    live.wait_until_ready()
    yield live
    live.http.get("/health")
    live.service.engine.check_integrity()
    live.close()


def finish(live: LiveServer, session_id: str, position: int) -> list[int]:
    """The rest of a text, verified in requests of which some have right draft tokens."""
    tokens: list[int] = []
    while True:
        at = position - len(PROMPT)
        drafts = [*TEXT[at : at + position % 4], 0]
        reply = live.post("/verify", {"session_id": session_id, "position": position, "draft_tokens": drafts})
        tokens += reply["tokens"]
        position += len(reply["tokens"])
        if reply["finish_reason"] is not None:
            return tokens


@pytest.mark.parametrize("strategy", ["coupled", "deterministic", "greedy"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_prefill_continues_a_text_from_every_position(live: LiveServer, strategy: str, known: bool) -> None:
    text = TEXT if strategy == "coupled" else ARGMAX
    assert len(text) == LENGTH
    for cut in CUTS:
        name = f"{strategy}-{known}-{cut}"
        body = {**BODY, "strategy": strategy}
        if known:
            live.post("/prefill", body, headers={"X-Session-Id": name})
            ahead = text[: max(1, cut - 1)]  # the session holds fewer, as many or more tokens than the reader
            live.post("/verify", {"session_id": name, "position": len(PROMPT), "draft_tokens": ahead})
        reply = live.post("/prefill", {**body, "session_id": name, "committed_ids": text[:cut]})
        assert (reply["prompt_len"], reply["position"]) == (len(PROMPT), len(PROMPT) + cut)
        assert reply["prompt_ids"] == PROMPT
        assert reply["total_tokens"] == reply["position"] + len(reply["tokens"])
        assert reply["tokens"] or cut == LENGTH
        written = text[:cut] + reply["tokens"]
        if reply["finish_reason"] is None:
            written += finish(live, name, reply["total_tokens"])
        else:
            assert (cut, reply["finish_reason"]) in [(LENGTH, "length"), (LENGTH - 1, "length")]
        assert written == text
        live.http.delete(f"/sessions/{name}")


@pytest.mark.parametrize("mode", ["target", "fused"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_generate_continues_a_text_from_every_position(live: LiveServer, mode: str, known: bool) -> None:
    """/generate completes what /prefill began."""
    for cut in CUTS:
        name = f"{mode}-{known}-{cut}"
        if known:
            live.post("/prefill", {**BODY, "session_id": name, "self_continue": True})
        reply = live.post("/generate", {**BODY, "session_id": name, "mode": mode, "committed_ids": TEXT[:cut]})
        assert (reply["session_id"], reply["token_ids"]) == (name, TEXT)
        assert (reply["prompt_tokens"], reply["generated_tokens"]) == (len(PROMPT), LENGTH)
        assert reply["finish_reason"] == "length"
        again = live.post("/prefill", {**BODY, "session_id": name, "committed_ids": TEXT})
        assert (again["tokens"], again["finish_reason"]) == ([], "length"), "the session is kept after its end"
        assert live.http.delete(f"/sessions/{name}").status_code == 200


@pytest.mark.parametrize("mode", ["target", "fused"])
def test_interrupted_stream_can_be_continued(live: LiveServer, mode: str) -> None:
    """Read some events, disconnect, and request the rest with the session id from the first event."""
    for events in (1, 2, 4, 9):
        body = {**BODY, "mode": mode, "draft_n": 2 if mode == "fused" else None, "stream": True}
        text = ""
        received: list[int] = []
        with live.client() as client, client.stream("POST", "/generate", json=body) as response:
            stream = read_events(response)
            name, opened = next(stream)
            assert name == "open"
            assert (opened["prompt_len"], opened["position"]) == (len(PROMPT), len(PROMPT))
            assert opened["sampling"]["seed"] == WARM.seed
            assert response.headers["x-session-id"] == opened["session_id"]
            for _, data in (next(stream) for _ in range(events)):
                text, received = text + data["text"], received + data["tokens"]
        body |= {"session_id": opened["session_id"], "committed_ids": received}
        with live.client() as client, client.stream("POST", "/generate", json=body) as response:
            (_, reopened), *parts, (last, summary) = read_events(response)
        assert reopened == {**opened, "position": len(PROMPT) + len(received)}
        assert parts[0][1]["position"] == reopened["position"]
        assert received + [token for _, part in parts for token in part["tokens"]] == TEXT
        assert (last, summary["token_ids"], summary["generated_tokens"]) == ("end", TEXT, LENGTH)
        assert text + "".join(part["text"] for _, part in parts) == summary["text"]


def test_character_split_by_an_interruption_arrives_whole(serve: Serve) -> None:
    script = Script(seed=11, support=256, sharpness=9.0)
    live = serve(ScriptedBackend(script))
    body = {"prompt_ids": [256, *"é".encode()], "max_tokens": 200, "seed": 1, "stream": True}
    text = plain(script, body["prompt_ids"], 200)  # type: ignore[arg-type]
    whole = bytes(text).decode(errors="replace")
    inside = next(at for at in range(1, 200) if text[at] & 0xC0 == 0x80 and text[at - 1] & 0xE0 == 0xC0)
    with live.client() as client, client.stream("POST", "/generate", json=body) as response:
        first = [data for name, data in read_events(response) if name == "tokens"][:inside]
    with live.client() as client:
        body |= {"committed_ids": text[:inside]}
        with client.stream("POST", "/generate", json=body) as response:
            rest = [data for name, data in read_events(response) if name == "tokens"]
    assert "".join(part["text"] for part in first + rest) == whole


def test_committed_ids_replace_different_tokens_of_the_session(live: LiveServer) -> None:
    """A near-tie can cause this. The session continues from the reader's text."""
    name = "parted"
    live.post("/prefill", {**BODY, "session_id": name})
    live.post("/verify", {"session_id": name, "position": len(PROMPT), "draft_tokens": TEXT[:10]})
    seen = [*TEXT[:5], (TEXT[5] + 1) % 40]
    expected = plain(SCRIPT, PROMPT + seen, LENGTH - len(seen), WARM)
    reply = live.post("/prefill", {**BODY, "session_id": name, "committed_ids": seen})
    assert reply["tokens"] == expected[:1]
    rest = live.post("/generate", {**BODY, "session_id": name, "committed_ids": seen})
    assert rest["token_ids"] == seen + expected


@pytest.mark.parametrize(
    ("change", "code", "param", "words"),
    [
        ({"seed": None}, "invalid_request", "committed_ids", "also give the seed"),
        ({"committed_ids": [1, END, 2]}, "invalid_request", "committed_ids.1", "token 257 ends the text"),
        ({"committed_ids": [1] * (LENGTH + 1)}, "invalid_request", "committed_ids", "31 tokens are more than the 30"),
        ({"committed_ids": [1, 258]}, "token_out_of_range", "committed_ids.1", "258"),
        ({"committed_ids": [1, -1]}, "token_out_of_range", "committed_ids.1", "-1"),
        ({"committed_ids": [True]}, "invalid_request", "committed_ids.0", "valid integer"),
    ],
    ids=["no seed", "after the end", "too many", "too large", "negative", "not a token"],
)
@pytest.mark.parametrize("path", ["/prefill", "/generate"])
def test_impossible_committed_ids_are_refused(
    live: LiveServer, path: str, change: dict[str, Any], code: str, param: str, words: str
) -> None:
    before = len(live.service.sessions)
    response = live.http.post(path, json={**BODY, "session_id": "wrong", "committed_ids": TEXT[:3], **change})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (422, code, param)
    assert words in error["message"]
    assert len(live.service.sessions) == before


@pytest.mark.parametrize("path", ["/prefill", "/generate"])
@pytest.mark.parametrize(
    "change",
    [
        *({"prompt_ids": [256, 9]}, {"seed": 6}, {"max_tokens": 29}, {"top_k": 3}),
        *({"presence_penalty": 0.5}, {"regex": "[a-z]*"}, {"cache_salt": "y"}),
    ],
    ids=str,
)
def test_other_parameters_under_the_same_id_are_a_conflict(live: LiveServer, path: str, change: dict[str, Any]) -> None:
    live.post("/prefill", {**BODY, "session_id": "mine"})
    body = {**BODY, "session_id": "mine", **change}
    for committed in ([], TEXT[:1]):
        response = live.http.post(path, json={**body, "committed_ids": committed})
        assert (response.status_code, response.json()["error"]["code"]) == (409, "session_conflict")
    assert live.post("/prefill", {**BODY, "session_id": "mine"})["tokens"] == TEXT[:1]


@pytest.mark.parametrize("mode", ["target", "fused"])
@pytest.mark.parametrize("path", ["/prefill", "/generate"])
def test_later_request_takes_over_a_running_text(serve: Serve, mode: str, path: str) -> None:
    backend = Slow()
    draft = ScriptedBackend(Script(seed=2, agreement=0.6, support=40), slots=2)
    live = serve(backend, draft=draft)
    backend.stop_in(6)
    body = {**BODY, "session_id": "s", "mode": mode, "stream": True}
    with live.client() as client, client.stream("POST", "/generate", json=body) as response:
        stream = read_events(response)
        next(stream)
        _, first = next(stream)
        assert backend.stopped.wait(20)
        with ThreadPoolExecutor(1) as thread:
            again = {**BODY, "session_id": "s", "committed_ids": first["tokens"]}
            later = thread.submit(live.post, path, again)
            *_, (name, last) = stream
            assert (name, last["error"]["code"]) == ("error", "session_conflict")
            if path == "/prefill":
                assert later.result(20)["tokens"], "the record has the next token, while the model runs"
            assert later.done() == (path == "/prefill")
            backend.gate.set()
            reply = later.result(20)
    known = first["tokens"] + reply["tokens"] if path == "/prefill" else reply["token_ids"]
    assert known == TEXT[: len(known)]
    until(lambda: live.service.texts.under_way == 0)
    assert finish(live, "s", len(PROMPT) + len(known)) == TEXT[len(known) :]
    live.service.engine.check_integrity()
    until(lambda: slots_free(live))  # no drafter is in use any more


def test_racing_requests_for_one_session_all_return_its_text(live: LiveServer) -> None:
    """The last request takes the session over. Each reply, and finally the session, has the text."""

    def ask(number: int) -> list[int]:
        path = ("/prefill", "/generate")[number % 2]
        body = {**BODY, "session_id": "raced", "committed_ids": TEXT[: number % 7]}
        response = live.http.post(path, json=body | ({"mode": "fused"} if number % 4 == 1 else {}))
        reply = response.json()
        if response.status_code != 200:
            assert reply["error"]["code"] in ("session_conflict", "unknown_session")
            return []
        return TEXT[: number % 7] + reply["tokens"] if path == "/prefill" else list(reply["token_ids"])

    with ThreadPoolExecutor(8) as threads:
        for known in threads.map(ask, range(40)):
            assert known == TEXT[: len(known)]
    assert live.post("/generate", {**BODY, "session_id": "raced"})["token_ids"] == TEXT
    live.service.engine.check_integrity()


def test_generate_keeps_a_session_only_under_a_given_id(live: LiveServer) -> None:
    before = [session.id for session in live.service.sessions.all()]
    live.post("/generate", BODY)
    assert [session.id for session in live.service.sessions.all()] == before, (
        "without an id, the session is deleted with the reply"
    )
    reply = live.post("/generate", BODY, headers={"X-Session-Id": "given"})
    assert reply["session_id"] == "given"
    held = live.service.sessions.all()[-1]
    assert (held.id, len(held.tokens)) == ("given", len(PROMPT) + LENGTH)
    assert live.post("/generate", {**BODY, "session_id": "given"})["token_ids"] == TEXT, "answered from the record"
    response = live.http.post("/generate", json={**BODY, "session_id": "given"}, headers={"X-Session-Id": "other"})
    assert response.json()["error"]["code"] == "session_mismatch"
    assert live.http.delete("/sessions/given").status_code == 200


def test_deleting_a_session_ends_its_running_text(serve: Serve) -> None:
    backend = Slow()
    live = serve(backend)
    backend.stop_in(3)
    body = {**BODY, "session_id": "s", "stream": True}
    with live.client() as client, client.stream("POST", "/generate", json=body) as response:
        stream = read_events(response)
        next(stream)
        assert backend.stopped.wait(20)
        live.http.delete("/sessions/s")
        *_, (name, last) = stream
        backend.gate.set()
    assert (name, last["error"]["code"]) == ("error", "unknown_session")
