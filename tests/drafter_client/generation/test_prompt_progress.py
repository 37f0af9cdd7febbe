"""While a long prompt is read, its progress is told: to a pair in each mode, to OpenAI's streams, by /sessions/{id}."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.draft_sources import Lookup
from drafter_client.http import transport as verifier_transport
from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from drafter_client.serve.app import create_app
from gateway.openai_api import generation
from specpair.engines.backend import Entry, TopLogitsSpec
from specpair.http_service.replies import events as event_stream
from specpair.protocol.prompt_progress import PromptProgress
from tests.drafter_client.support import Verifier, serving
from tests.gateway.openai_api.conftest import served
from verifier_server.api import routes, streams

PROMPT = [7] * 1000


class _Held(ScriptedBackend):
    """Reads the second part of a long prompt only when `go` is set."""

    def __init__(self) -> None:
        super().__init__(Script(), context_length=2048)
        self.go, self.reached = threading.Event(), threading.Event()

    def extend_top_logits(self, batch: Sequence[Entry], wanted: Sequence[TopLogitsSpec]) -> Any:
        if any(entry.start >= 512 and len(entry.tokens) > 100 for entry in batch):
            self.reached.set()
            assert self.go.wait(20)
        return super().extend_top_logits(batch, wanted)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wait for news is short."""
    monkeypatch.setattr(verifier_transport, "PROBE_AFTER", 0.05)
    monkeypatch.setattr(verifier_transport, "PROBE_AGAIN", 0.05)
    for module in (event_stream, routes, streams):
        monkeypatch.setattr(module, "HEARTBEAT", 0.05)


@contextmanager
def _held() -> Iterator[tuple[_Held, Verifier]]:
    backend = _Held()
    with serving(backend) as verifier:
        try:
            yield backend, verifier
        finally:
            backend.go.set()


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.TARGET])
def test_a_pair_is_told_how_much_of_a_long_prompt_is_read(quick: None, mode: Mode) -> None:
    found: list[PromptProgress] = []
    with _held() as (backend, verifier):

        def on_prompt(progress: PromptProgress) -> None:
            found.append(progress)
            if progress.read:
                backend.go.set()

        with Pair(verifier.url, Lookup(), on_prompt=on_prompt) as pair:
            text = pair.generate(PROMPT, Options(max_tokens=3, mode=mode))
            finished = text.read()
    assert PromptProgress(512, 1000) in found and len(finished.token_ids) == 3
    assert text.stats.prompt_progress is None, "the prompt is read"


def test_openai_s_streams_say_it_in_comments(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "HEARTBEAT", 0.05)
    with _held() as (backend, verifier):
        app = create_app(Pair(verifier.url, Lookup()), Options(), 1, 1)
        with served(app) as drafter:
            for url in (verifier.url, drafter):
                backend.go.clear()
                body = {"prompt": PROMPT, "max_tokens": 2, "stream": True, "cache_salt": url}
                with httpx.stream("POST", url + "/v1/completions", json=body, timeout=30) as response:
                    comments = []
                    for line in response.iter_lines():
                        if line.startswith(": "):
                            comments.append(line)
                        if line == ": prompt 512/1000":
                            backend.go.set()
                assert comments[-1] == ": prompt 512/1000", url
