"""Helpers of the drafter's tests: a real verifier in a thread, drafters of any quality, plain decoding as reference."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import uvicorn

from backends.scripted import Script, ScriptedBackend
from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.events import Committed, Listener, to_all
from drafter_client.generation.generation import Generation, Tokens
from drafter_client.generation.resuming import released
from drafter_client.generation.speculative_decoding import SpeculativeRun
from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import TextSession
from drafter_client.options import Options
from drafter_client.statistics import Stats
from specpair.drafters.base import Drafter, Expansion
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.vocabulary import Vocabulary
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling, choose
from tests.drafter_client.http.fake_transports import model_info as honest
from verifier_server.app import create_app
from verifier_server.engine.engine import Engine
from verifier_server.service import Service
from verifier_server.settings import Settings

PROMPT = list(b"def f(x):")
GREEDY = Sampling()
WARM = Sampling(seed=20, temperature=0.9)
FILTERED = Sampling(seed=21, temperature=1.3, top_k=20, top_p=0.9)
ALL = Mechanisms()
WAITING = Mechanisms(self_continue=False)
WAYS = {
    "overlap": Mechanisms(in_flight=1, after_recovered=False, self_continue=False),
    "several in flight": Mechanisms(after_recovered=False, self_continue=False),
    "recovered tokens": WAITING,
    "all": ALL,
}
EACH_WAY = pytest.mark.parametrize("mechanisms", WAYS.values(), ids=WAYS)
SAMPLING = {"greedy": GREEDY, "warm": WARM, "filtered": FILTERED}


@dataclass(frozen=True)
class Verifier:
    """A running verifier: its URL, and its service, which tests inspect."""

    url: str
    service: Service

    @property
    def sessions(self) -> int:
        return len(self.service.sessions)


class Held(ScriptedBackend):
    """Goes so far in a text as a test says, so that the text is not over before the test does something to it."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._limit, self._changed = sys.maxsize, threading.Condition()
        self._beyond: tuple[int, Callable[[], object]] | None = None

    def go(self, limit: int = sys.maxsize) -> None:
        """Go on, and no further than `limit` tokens."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    def until(self, limit: int, act: Callable[[], object]) -> Callable[[], None]:
        """Go no further than `limit` tokens until the function that this returns was called, which calls `act`."""
        self.go(limit)

        def acted() -> None:
            try:
                act()
            finally:
                self.go()

        return acted

    def beyond(self, limit: int, act: Callable[[], object]) -> None:
        """Call `act` once, in the first pass that goes beyond `limit` tokens."""
        self._beyond = limit, act

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        reached = max(entry.start + len(entry.tokens) for entry in batch)
        if self._beyond is not None and reached > self._beyond[0]:
            act, self._beyond = self._beyond[1], None
            act()
        with self._changed:
            assert self._changed.wait_for(lambda: reached <= self._limit, 60)
        return super()._forward(batch)


def held(
    verifier: Verifier, after: int, act: Callable[[], object], prompt_len: int = 10, room: int = 100
) -> Callable[[], None]:
    """What `read` is to call after `after` tokens of a text. Until then the verifier's `Held` goes little further.

    `room`: that much, at least the tokens of a draft.
    """
    return held_backend(verifier).until(prompt_len + after + room, act)


def held_backend(verifier: Verifier) -> Held:
    """The verifier's backend, which must be a `Held`."""
    engine = verifier.service.loader.loaded().engine
    assert isinstance(engine, Engine) and isinstance(engine.backend, Held)
    return engine.backend


@contextmanager
def serving(backend: Backend | None = None, *, wait: bool = True, **settings: Any) -> Iterator[Verifier]:
    """`running` with a toy model as target, unless another is given."""
    toy = backend or ScriptedBackend(Script(seed=1))
    with running(Settings(backend="scripted", **settings), toy, wait=wait) as verifier:
        yield verifier


@contextmanager
def running(settings: Settings, backend: Backend | None = None, *, wait: bool = True) -> Iterator[Verifier]:
    """A real HTTP server in a thread, on a free loopback port. Without a backend it loads the one of `settings`."""
    app = create_app(settings, backend)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, ws="none", lifespan="on", timeout_graceful_shutdown=5)
    server = _Signalling(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="uvicorn")
    thread.start()
    try:
        assert server.up.wait(20), "the server did not start"
        if wait:
            app.state.service.loader.wait()
        yield Verifier(f"http://127.0.0.1:{listener.getsockname()[1]}", app.state.service)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


class _Signalling(uvicorn.Server):
    """Sets `up` when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


class Scenario:
    """A drafter with a fixed rule: `next_token(tokens)` returns the next token."""

    width = 1
    reach = 96

    def __init__(self, next_token: Callable[[Sequence[int]], int], confidence: float = 0.5) -> None:
        self._next_token, self._confidence = next_token, confidence

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        return Expansion([Proposal(self._next_token([*text, *tail]), self._confidence) for tail in tails], len(tails))


class InterruptedAfter(ModelDrafter):
    """Raises KeyboardInterrupt in the fourth draft step: in the second round, with three draft tokens in a round."""

    steps = 0

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        if self.steps == 3:
            raise KeyboardInterrupt
        self.steps += 1
        return super().expand(text, tails, runners_up)


def toy_drafter(agreement: float = 0.6, sampling: Sampling = GREEDY) -> ModelDrafter:
    """A draft model that agrees with the toy target at a share of the positions."""
    return ModelDrafter(ScriptedBackend(Script(seed=1, agreement=agreement)), sampling)


def drafts_of(drafter: Drafter, text: Sequence[int], count: int) -> list[Proposal]:
    """The predictions of a drafter after a text, one after the other along its own choices."""
    made: list[Proposal] = []
    for _ in range(count):
        made += drafter.expand(text, [[each.token for each in made]], False).proposals
    return made


class Ticks:
    """A clock that moves only when it is read, by `step` seconds."""

    def __init__(self, step: float = 0.001) -> None:
        self.now, self._step = 0.0, step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


def plain(backend: Backend, prompt: Sequence[int], count: int, sampling: Sampling = Sampling()) -> list[int]:
    """Plain decoding: one token after the other, up to an end token, `count` tokens or the end of the context."""
    tokens = list(prompt)
    limit = min(backend.context_length, len(tokens) + count)
    backend.release(0)
    held = 0
    while len(tokens) < limit:
        rows = backend.extend([Entry(0, held, tokens[held:], len(tokens) - held - 1)])[0]
        held = len(tokens)
        tokens.append(choose(rows[0], sampling, len(tokens)))
        if tokens[-1] in backend.vocabulary.ends:
            break
    return tokens[len(prompt) :]


def toy_text(count: int, prompt: str = "def f(x):") -> list[int]:
    """The text of the toy target (`Script(seed=1)`) by plain decoding."""
    backend = ScriptedBackend(Script(seed=1))
    return plain(backend, backend.vocabulary.encode(prompt), count)


@dataclass
class Run:
    """One generation by the pair: its statistics and its committed tokens."""

    stats: Stats
    committed: list[Committed]

    @property
    def tokens(self) -> list[int]:
        return [token for piece in self.committed for token, _ in piece.tokens]


def model_info(max_drafts: int = 64, context_length: int = 1024) -> ModelInfo:
    """The toy verifier's `/model`, as the client reads it."""
    return honest(name="scripted-1", context_length=context_length, max_drafts=max_drafts, pass_ms=[])


def generate(
    client: VerifierClient,
    drafter: Any,
    length: int | None = None,
    prompt: Sequence[int] = PROMPT,
    *,
    info: ModelInfo | None = None,
    clock: Callable[[], float] | None = None,
    mechanisms: Mechanisms = LOCKSTEP,
    stats: Stats | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> Run:
    """Generate a text to its end. `length`: draft tokens in each verify request; None: the controller chooses."""
    run = Run(stats or Stats(), [])
    count = StatsCounter(run.stats).take
    clock = clock or (Ticks() if mechanisms is LOCKSTEP else time.perf_counter)
    text = TextSession(list(prompt))
    loop = SpeculativeRun(
        client=client,
        drafter=drafter,
        text=text,
        options=Options(**{"max_tokens": 100_000, "draft_n": length, "lookup": False} | options),
        info=info or model_info(),
        tell=count if listener is None else to_all(count, listener),
        clock=clock,
        mechanisms=mechanisms,
    ).tokens()
    with released(client, text), closing(loop):
        run.committed += loop
    return run


def options_of(sampling: Sampling, max_tokens: int) -> dict[str, Any]:
    """The prefill's options for this sampling."""
    return {
        "max_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
    }


def read(text: Generation, after: int, then: Callable[[], object], tokens: list[int] | None = None) -> list[int]:
    """The tokens of a text, appended to `tokens` if given. `then` is called once, when there are `after` of them."""
    tokens = [] if tokens is None else tokens
    done = False
    for event in text:
        if isinstance(event, Tokens):
            tokens += [token.id for token in event.tokens]
            if not done and len(tokens) >= after:
                done = True
                then()
    return tokens


@cache
def target_alone(sampling: Sampling, count: int) -> list[int]:
    """The scripted target's plain decoding after `PROMPT`."""
    return plain(ScriptedBackend(Script(seed=1)), PROMPT, count, sampling)


def forget_all(verifier: Verifier) -> None:
    """Have the verifier lose its sessions."""
    service, removed = verifier.service, threading.Event()

    def remove() -> None:
        for session in service.sessions.all():
            service.sessions.remove(session.id)
        removed.set()

    service.engine_client.put(remove)
    service.engine_client.deliver()
    assert removed.wait(10)


def serve_vocabulary(patch: pytest.MonkeyPatch, service: Service, vocabulary: Vocabulary) -> None:
    """Have a verifier serve another vocabulary: in what it says of itself, and in its engine."""
    engine = service.loader.loaded().engine
    patch.setattr(engine, "info", replace(engine.info, vocabulary=vocabulary))
    assert isinstance(engine, Engine)
    patch.setattr(engine.backend, "vocabulary", vocabulary)
