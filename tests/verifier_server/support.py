"""What tests of the verifier share: slow backends, readers of streams, clients that leave, requests for drafting."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from backends.scripted import Script, ScriptedBackend
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import CacheFull
from specpair.http_service.keys import key_file
from specpair.http_service.keys.key_file import KeyLimits, StoredKey, digest_of
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from tests.verifier_server.conftest import SCRIPT, LiveServer
from tests.verifier_server.engine.bench import plain
from verifier_server.generation.server_drafting import ServerDrafting

LENGTH = 40
PROMPT = "x = "
PROMPT_IDS = [256, *PROMPT.encode()]
REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/prefill", {"prompt": "x"}),
    ("POST", "/verify", {"draft_tokens": []}),
    ("POST", "/verify", {"session_id": "from-before-a-restart", "position": 5, "draft_tokens": []}),
    ("POST", "/generate", {"prompt": "x"}),
    ("GET", "/model", None),
]

Event = tuple[str, Any]


def drafting_client(live: LiveServer, number: int) -> tuple[list[int], list[int]]:
    """Generate in a new session with drafts that are sometimes right. Returns the text and the expected text."""
    ids = [256, *f"client {number}".encode()]
    sampling = Sampling(number, 0.7 if number % 2 else 0.0)
    expected = plain(SCRIPT, ids, LENGTH, sampling)
    body = {"prompt_ids": ids, "max_tokens": LENGTH, "seed": number, "temperature": sampling.temperature}
    with live.client(headers={"X-Session-Id": f"client-{number}"}) as http:
        reply = http.post("/prefill", json=body).json()
        text: list[int] = list(reply["tokens"])
        for _ in range(LENGTH - 1):
            drafts = [*expected[len(text) : len(text) + number], 0, 1][:6]
            reply = http.post("/verify", json={"position": len(ids) + len(text), "draft_tokens": drafts}).json()
            text += reply["tokens"]
    return text, expected


class Gated(ScriptedBackend):
    """A backend that waits in its passes while `gate` is closed. Each pass sets `entered` first."""

    def __init__(self, script: Script = SCRIPT, **options: Any) -> None:
        super().__init__(script, **options)
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        self.entered.set()
        assert self.gate.wait(20)
        return super()._forward(batch)

    def close_gate(self) -> None:
        self.gate.clear()
        self.entered.clear()


def until(happened: Callable[[], bool]) -> None:
    """Wait until `happened()`: state of a verifier's event loop, which tells no other thread when it changes."""
    for _ in range(20_000):
        if happened():
            return
        time.sleep(1e-3)
    raise AssertionError("it never happened")


def leave_behind(live: LiveServer, path: str, body: dict[str, Any], arrived: Callable[[], bool]) -> None:
    """Send a request and disconnect once it has arrived."""
    content = json.dumps(body).encode()
    with socket.create_connection(live.address) as connection:
        connection.sendall(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(content))
        )
        connection.sendall(content)
        until(arrived)


def events(live: LiveServer, body: dict[str, Any]) -> list[tuple[str, Any]]:
    """All events of a stream except the first, `open`."""
    with live.http.stream("POST", "/generate", json={**body, "stream": True}) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        text = response.read().decode()
    found = []
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    opened, *rest = found
    assert opened[0] == "open"
    assert opened[1].keys() == {"session_id", "prompt_len", "position", "identity", "sampling"}
    return rest


def read_events(response: httpx.Response) -> Iterator[Event]:
    """Yields events as they arrive; comments are events named `:`."""
    name = ""
    for line in response.iter_lines():
        if line.startswith(":"):
            yield ":", None
        elif line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def tokens_of(found: Sequence[Event], start: int) -> list[int]:
    """The tokens of the events, which must begin at `start` and leave no gap."""
    tokens: list[int] = []
    for name, data in found:
        assert name == "tokens"
        assert len(data["sources"].replace("x", "")) == len(data["tokens"])
        assert data.keys() == {"position", "tokens", "sources", "own"} | ({"forward_ms"} if data["own"] else set())
        assert data["position"] == start + len(tokens)
        assert data["tokens"]
        tokens += data["tokens"]
    return tokens


def bearer(name: str) -> dict[str, str]:
    """The header with the key of this name: its own name."""
    return {"Authorization": f"Bearer {name}"}


def keys_in(path: Path, *names: str, **limits: KeyLimits) -> Path:
    """Adds keys to a file, each of which is its own name; `boss` is an admin's. Returns the path."""
    for name in (*names, *limits):
        given = limits.get(name, KeyLimits())
        key_file.add(path, StoredKey(name, digest_of(name), given, admin=name == "boss"))
    return path


def samples(response: httpx.Response) -> Iterator[tuple[str, dict[str, str], float]]:
    assert response.status_code == 200, response.text
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            yield sample.name.removeprefix("specpair_"), sample.labels, sample.value


def metric(live: LiveServer, name: str, **labels: str) -> float:
    """The metric of the one sample with this name and, among others, these labels."""
    [found] = [
        metric
        for each, given, metric in samples(live.http.get("/metrics"))
        if each == name and labels.items() <= given.items()
    ]
    return found


GREEDY, WARM = Sampling(seed=4), Sampling(seed=5, temperature=0.8)
FILTERED = Sampling(seed=6, temperature=1.2, top_k=20, top_p=0.9)
_SALTS = count()


def half_right(slots: int = 2, **limits: Any) -> ScriptedBackend:
    """A draft model that agrees with the target at 60 % of all positions."""
    return ScriptedBackend(Script(seed=SCRIPT.seed, agreement=0.6), slots=slots, **limits)


def slots_free(live: LiveServer) -> bool:
    """Whether the draft model could begin as many texts as it has slots."""
    drafting = live.service.loader.loaded().drafting
    assert isinstance(drafting, ServerDrafting)
    with ExitStack() as texts, suppress(CacheFull):
        for _ in range(drafting.draft.slots):
            texts.enter_context(drafting.draft.drafter(TextSpec()))
        return True
    return False


def body_of(sampling: Sampling, prompt: Sequence[int] = PROMPT_IDS, **options: Any) -> dict[str, Any]:
    """A request, with a salt of its own: no text is helped by earlier ones."""
    drawn = {"seed": sampling.seed, "temperature": sampling.temperature, "cache_salt": f"{next(_SALTS)}"}
    filters = {"top_k": sampling.top_k, "top_p": sampling.top_p}
    return {"prompt_ids": list(prompt), "mode": "fused", "max_tokens": LENGTH, **drawn, **filters, **options}
