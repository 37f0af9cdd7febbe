"""Generation: its events concatenate to the text, its run ends where the reader stops; the progress of long prompts."""

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import ByteVocabulary, Script, ScriptedBackend
from drafter_client import Finished, Generation, Options, Stats, Tokens, TokenSource
from drafter_client.draft_sources import Lookup
from drafter_client.generation.events import Committed
from drafter_client.http import transport as verifier_transport
from drafter_client.http.text_session import TextSession
from drafter_client.options import Mode
from drafter_client.pair import Pair
from drafter_client.serve.app import create_app
from gateway.openai_api import generation
from specpair.engines.backend import Entry, TopLogitsSpec
from specpair.http_service.replies import events as event_stream
from specpair.protocol.prompt_progress import PromptProgress
from tests.drafter_client.support import Verifier, serving
from tests.gateway.openai_api.conftest import served
from verifier_server.api import streams

PROMPT = [256, 97]
TEXT = "naïve 日本 😀\n".encode()


class Run:
    """Commits given pieces, and records whether it was begun and ended."""

    def __init__(self, pieces: Sequence[Sequence[int]], fails: Exception | None = None) -> None:
        self.text, self.begun, self.ended = TextSession(PROMPT), False, False
        self._pieces, self._fails = pieces, fails

    def generation(self) -> Generation:
        return Generation(closing(self._run()), ByteVocabulary(), self.text, Options(seed=1), Stats())

    def _run(self) -> Generator[Committed, None, None]:
        self.begun = True
        try:
            for piece in self._pieces:
                position = len(self.text.known)
                self.text.known += piece
                yield Committed(position, [(token, TokenSource.BONUS) for token in piece])
            if self._fails is not None:
                raise self._fails
            self.text.finish_reason = "length"
        finally:
            self.ended = True


@given(cuts=st.lists(st.integers(1, len(TEXT) - 1), max_size=8), whole=st.booleans())
def test_events_concatenate_to_the_text(cuts: list[int], whole: bool) -> None:
    data = TEXT if whole else TEXT[:-3]  # the latter ends within a character
    edges = [0, *sorted(cut for cut in set(cuts) if cut < len(data)), len(data)]
    pieces = [list(data[low:high]) for low, high in pairwise(edges)]
    *before, last = Run(pieces).generation()
    events = [event for event in before if isinstance(event, Tokens)]
    assert isinstance(last, Finished) and events == before
    streamed = "".join(event.text for event in events)
    assert streamed == data.decode(errors="ignore") and last.text == data.decode(errors="replace")
    assert [token.id for event in events for token in event.tokens] == list(data) == last.token_ids
    position = len(PROMPT)
    for event in events:
        assert event.position == position and event.tokens
        position += len(event.tokens)
    assert last.finish_reason == "length"


@pytest.mark.parametrize("way", ["close", "with", "forget", "break"])
def test_leaving_a_text_early_ends_its_run(way: str) -> None:
    run = Run([[97], [98], [99]])
    generation: Generation | None = run.generation()
    assert generation is not None
    if way == "with":
        with generation:
            next(generation)
    elif way == "break":
        for _ in generation:
            break
        generation = None
    else:
        next(generation)
        assert not run.ended
        if way == "close":
            generation.close()
        generation = None
    assert run.ended and run.text.tokens == [97]
    if generation is not None:
        assert list(generation) == [] and generation.text == "a"


def test_read_returns_the_end_also_from_the_middle() -> None:
    generation = Run([[97], [98]]).generation()
    next(generation)
    assert generation.read().text == "ab"
    with pytest.raises(RuntimeError, match="has ended already, and its events were read"):
        generation.read()


def test_error_is_raised_after_the_tokens_before_it() -> None:
    run = Run([[97]], fails=ValueError("odd"))
    generation = run.generation()
    next(generation)
    with pytest.raises(ValueError, match="odd"):
        next(generation)
    assert run.ended and generation.text == "a" and list(generation) == []


LONG_PROMPT = [7] * 1000


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
    for module in (event_stream, streams):
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
            text = pair.generate(LONG_PROMPT, Options(max_tokens=3, mode=mode))
            finished = text.read()
    partial = [each for each in found if each.read < each.of]  # a late probe may see the prompt read
    assert partial[-1] == PromptProgress(512, 1000) and len(finished.token_ids) == 3
    assert text.stats.prompt_progress is None, "the prompt is read"


def test_openai_s_streams_say_it_in_comments(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "HEARTBEAT", 0.05)
    with _held() as (backend, verifier):
        app = create_app(Pair(verifier.url, Lookup()), Options(), 1, 1)
        with served(app) as drafter:
            for url in (verifier.url, drafter):
                backend.go.clear()
                body = {"prompt": LONG_PROMPT, "max_tokens": 2, "stream": True, "cache_salt": url}
                with httpx.stream("POST", url + "/v1/completions", json=body, timeout=30) as response:
                    comments = []
                    for line in response.iter_lines():
                        if line.startswith(": "):
                            comments.append(line)
                        if line == ": prompt 512/1000":
                            backend.go.set()
                assert comments[-1] == ": prompt 512/1000", url
