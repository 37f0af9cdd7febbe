"""`GET /events` of the verifier: what is told of sessions and passes, to whom, and what it costs without a reader."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from backends.scripted import ScriptedBackend
from specpair.http_service.keys import access, key_file
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import bearer, keys_in, read_events
from verifier_server.api.operations import LIVE

PROMPT = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT, 12)
MODELS: dict[str, type[BaseModel]] = dict(LIVE[0].events)
PATIENCE = 30  # silences, of a second each, after which an event does not come


class Told:
    """What a stream has told so far: the last of each event, and all passes and ended texts."""

    def __init__(self, response: httpx.Response) -> None:
        self._events = read_events(response)
        self.last: dict[str, Any] = {}
        self.passes: list[Any] = []
        self.ended: list[Any] = []

    def until(self, happened: Callable[["Told"], bool]) -> None:
        """Read on until it has happened."""
        silences = 0
        while not happened(self):
            name, data = next(self._events)
            if name == ":":
                silences += 1
                assert silences < PATIENCE, f"it never happened; the last events: {self.last}"
                continue
            MODELS[name].model_validate_json(json.dumps(data), extra="forbid")
            self.last[name] = data
            if name == "passes":
                self.passes += data["passes"]
            elif name == "ended":
                self.ended += data["sessions"]

    @property
    def sessions(self) -> list[Any]:
        """Those told of last."""
        return self.last["sessions"]["sessions"]

    @property
    def committed(self) -> int:
        """Tokens of all passes."""
        return sum(each["committed"] for each in self.passes)

    def ends(self) -> None:
        """Wait for the end of the stream."""
        with pytest.raises(StopIteration):
            self.until(lambda _: False)


@contextmanager
def told(live: LiveServer, key: str = "") -> Iterator[Told]:
    """A stream, from its first events on."""
    headers = bearer(key) if key else {}
    with live.client(headers=headers) as http, http.stream("GET", "/events") as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = Told(response)
        stream.until(lambda told: len(told.last) == 3)
        yield stream


def test_a_session_and_its_passes_are_told_from_beginning_to_end(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=3))
    with told(live) as stream:
        first = stream.last["state"]
        assert (first["status"], first["sessions"], first["engine"]["slots"]) == ("ready", 0, 3)
        assert first["identity"] == live.http.get("/model").json()["identity"]
        assert stream.last["sessions"] == {"sessions": [], "more": 0}
        live.post("/prefill", {"session_id": "one", "prompt_ids": PROMPT, "max_tokens": len(TEXT)})
        stream.until(lambda told: [each["generated"] for each in told.sessions] == [1])
        [row] = stream.sessions
        assert (row["number"], row["session_id"], row["key"], row["mode"]) == (1, None, None, "remote")
        assert (row["prompt_tokens"], row["prompt_read"], row["most_tokens"]) == (3, 3, len(TEXT))
        drafts = [*TEXT[1:4], 0]
        live.post("/verify", {"session_id": "one", "position": 4, "draft_tokens": drafts})
        body = {"session_id": "one", "position": 8, "draft_tokens": TEXT[5:]}
        assert live.post("/verify", body)["finish_reason"] == "length"
        stream.until(lambda told: told.committed == len(TEXT) and told.ended != [])
        [ended] = stream.ended
        assert (ended["number"], ended["generated"], ended["finish_reason"]) == (1, len(TEXT), "length")
        stream.until(lambda told: told.last["usage"]["keys"][0]["generated_tokens"] == len(TEXT))
        judged, accepted = (sum(each[name] for each in stream.passes) for name in ("judged", "accepted"))
        assert (judged, accepted) == (ended["drafted"], ended["accepted"])
        assert accepted >= 3 and all(each["took_ms"] >= 0 and each["sessions"] == 1 for each in stream.passes)
        assert stream.passes[0]["prefilled"] == len(PROMPT) - 1
        assert live.http.delete("/sessions/one").status_code == 200
        stream.until(lambda told: told.sessions == [])


def test_a_key_sees_what_is_its_own_and_an_admins_key_all(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_in(tmp_path / "keys.toml", "alice", "bob", "boss")
    live = serve(ScriptedBackend(SCRIPT, slots=4), keys_file=keys)
    assert live.http.get("/events").status_code == 401
    for name in ("alice", "bob"):
        body = {"session_id": f"of-{name}", "prompt_ids": PROMPT, "max_tokens": 9}
        live.post("/prefill", body, headers=bearer(name))
    with told(live, "boss") as stream:
        assert [(each["key"], each["session_id"]) for each in stream.sessions] == [
            ("bob", None),
            ("alice", None),
        ]
        assert [each["key"] for each in stream.last["usage"]["keys"]] == ["alice", "bob", "boss"]
    with told(live, "alice") as stream:
        [row] = stream.sessions
        assert (row["number"], row["key"], row["session_id"]) == (1, "alice", "of-alice")
        assert [each["key"] for each in stream.last["usage"]["keys"]] == ["alice"]
        assert stream.last["state"]["sessions"] == 2, "how full the verifier is, every caller may know"
        ends = {"session_id": "of-bob", "position": 4, "draft_tokens": []}
        for position in range(4, 12):
            live.post("/verify", ends | {"position": position}, headers=bearer("bob"))
        stream.until(lambda told: told.last["state"]["engine"]["slots_in_use"] == 1 and told.committed == 8)
        assert stream.ended == []
        monkeypatch.setattr(access, "LOOK_EVERY", 0.0)
        key_file.remove(keys, "alice")
        with suppress(httpx.RemoteProtocolError):  # the connection may be broken first
            stream.ends()


def test_it_tells_why_the_verifier_serves_no_texts_and_ends_with_it(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    with told(live) as stream:
        live.service.loader.failure = "no such file"
        stream.until(lambda told: told.last["state"]["status"] == "failed")
        assert stream.last["state"]["reason"] == "no such file"
        live.service.feed.close()
        stream.ends()
