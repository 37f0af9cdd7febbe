"""Kills, drains, cuts off and adds verifiers with the shipped pair, for minutes: each text must equal the
target's.

Method. Three verifiers with deterministic logits on loopback, named to the drafters in a list, and behind a router; a
`drafter serve` in front of that router. A fourth address is served by one target and, after each kill, by another one.
Drafters in this process write one text after the other, in each mode, greedily and at temperature 0.8, with seeds.
Every `PAUSE` seconds one of these happens to one of the three, drawn by the seed, but never to the last that is up:

- killed: SIGKILL, in the middle of its texts; it stays away until a later event adds it;
- drained: SIGTERM; it ends when its texts have left or are written, and stays away, too;
- cut off: SIGSTOP for some seconds; the connections stay, and nothing answers, as when a network is parted;
- added: one that is away is started on its port.

Each text is compared with that of plain decoding, computed before. The library and `drafter serve` go on after each
fault: any error is a lost text. A plain client of the router's own endpoint asks again where its stream broke; what it
had is the beginning of the text. At the fourth address, a text that was begun by the target before ends with an error
that says so. At the end all are left alone, and nothing may be left of the texts.
"""

import itertools
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from math import inf
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any, NamedTuple

import httpx

from backends.registry import load
from drafter_client import DraftModel, Lookup, Mode, Options, Pair, Tokens
from drafter_client.draft_sources import Source
from drafter_client.errors import ModelChanged
from lab.benchmarks.faults.checks import Held, completion, wait_until
from models import DEFAULT_TARGET
from specpair.child_processes.children import child
from specpair.child_processes.serving import variables
from specpair.engines.load_options import LoadOptions
from tests.deploy.routers import FILES, free_port, routing
from tests.drafter_client.support import plain

PROMPT = "def f(x):"
OTHER = DEFAULT_TARGET.with_name("stdlib-target-q4_0.gguf")  # the model that takes the fourth address by turns
LENGTHS = (20, 60, 120)  # tokens of a text
SEEDS = 6
SETTINGS = {
    **{"deterministic": 1, "threads": 1, "context": 512, "slots": 4, "draft_backend": "ngram"},
    **{"drain_seconds": 5, "session_ttl": 15, "log_format": "json"},
}
PAUSE, CUT_OFF = 3.0, 4.0  # seconds between two events; that a verifier is cut off
AT_REST = 60.0  # seconds within which sessions expire and everything is back
START = 120.0  # seconds within which a program is ready


class Kind(NamedTuple):
    """A kind of drafter: its drafts, its mode, and the way to its verifiers."""

    source: Source | None
    mode: Mode
    way: str


KINDS = (
    Kind(Lookup(), Mode.REMOTE, "list"),
    Kind(DraftModel(engine=LoadOptions(threads=1)), Mode.REMOTE, "router"),
    Kind(None, Mode.TARGET, "list"),
    Kind(None, Mode.FUSED, "router"),
    Kind(DraftModel(engine=LoadOptions(threads=1)), Mode.AUTO, "list"),
    Kind(Lookup(), Mode.AUTO, "router"),
    Kind(Lookup(), Mode.REMOTE, "turning"),
    Kind(None, Mode.TARGET, "turning"),
)


def _health(url: str) -> dict[str, Any]:
    """The health of a service; empty: no answer."""
    with suppress(httpx.HTTPError, ValueError):
        return dict(httpx.get(f"{url}/health", timeout=5, trust_env=False).json())
    return {}


class Machine:
    """One verifier on a port of its own."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self.port = stack, free_port()
        self._process: Popen[str] | None = None
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def is_away(self) -> bool:
        """Whether its process has ended."""
        return self._process is None or self._process.poll() is not None

    @property
    def is_ready(self) -> bool:
        return not self.is_away and _health(self.url).get("status") == "ready"

    @property
    def rests(self) -> bool:
        """Whether no state of any text remains."""
        if self.is_away:
            return True
        with suppress(httpx.HTTPError):
            httpx.get(f"{self.url}/sessions", timeout=5, trust_env=False)  # which removes expired sessions
        health = _health(self.url)
        return [health.get(name) for name in ("sessions", "texts", "waiting")] == [0, 0, 0]

    def start(self, model: Path = DEFAULT_TARGET) -> None:
        """Start its process, after an earlier one has ended."""
        if self._process is not None:
            self._process.wait()
        command = ("-m", "uvicorn", "verifier_server.app:app", "--port", str(self.port))
        environment = os.environ | variables(**SETTINGS, model=model)
        running = child(*command, environment=environment, stdout=DEVNULL, stderr=DEVNULL)
        self._process = self._stack.enter_context(running)

    def tell(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def disturb(machines: list[Machine], rng: random.Random, timers: list[threading.Timer]) -> str:
    """Disturb one of the machines; returns the disturbance."""
    ready, away = [each for each in machines if each.is_ready], [each for each in machines if each.is_away]
    possible = ["added", "added"] * bool(away) + ["killed", "drained", "cut off"] * (len(ready) > 1)
    if not possible:
        return "nothing, as one is left"
    what = rng.choice(possible)
    if what == "added":
        rng.choice(away).start()
        return what
    one, signals = rng.choice(ready), {"killed": signal.SIGKILL, "drained": signal.SIGTERM, "cut off": signal.SIGSTOP}
    one.tell(signals[what])
    if what == "cut off":
        timers.append(threading.Timer(CUT_OFF, one.tell, [signal.SIGCONT]))
        timers[-1].start()
    return what


def _options(length: int, seed: int, mode: Mode = Mode.TARGET) -> Options:
    return Options(max_tokens=length, temperature=0.8 * (seed % 2), seed=seed, mode=mode)


def _plain_texts() -> list[dict[int, list[int]]]:
    """The longest texts of both targets by plain decoding, by their seeds."""
    texts = []
    for model in (DEFAULT_TARGET, OTHER):
        options = LoadOptions(model=model, deterministic=True, threads=1, context_length=512)
        with closing(load("llama_cpp", options)) as target:
            prompt = target.vocabulary.encode(PROMPT)
            each = {seed: _options(max(LENGTHS), seed).sampling for seed in range(SEEDS)}
            texts.append({seed: plain(target, prompt, max(LENGTHS), sampling) for seed, sampling in each.items()})
    return texts


class Texts:
    """Requests texts and records the outcomes. Used by several threads, each of which adds to lists."""

    def __init__(self) -> None:
        self.expected = _plain_texts()  # of each target, the longest by seed
        self.over = threading.Event()
        self.tokens: list[int] = []  # of each text
        self.happened: list[str] = []  # what else there was of texts
        self.faults: list[str] = []

    def by_library(self, number: int, kind: Kind, url: str) -> None:
        """Have a drafter write texts until all is over."""
        rng, turning = random.Random(number), kind.way == "turning"
        with Pair(url, kind.source, on_notice=lambda _: None) as pair:
            while not self.over.is_set():
                length, seed = rng.choice(LENGTHS), rng.randrange(SEEDS)
                what = f"drafter {number}, {kind.way}, mode {kind.mode}, {length} tokens, seed {seed}"
                may_be = [each[seed][:length] for each in (self.expected if turning else self.expected[:1])]
                tokens, text = list[int](), pair.generate(PROMPT, _options(length, seed, kind.mode))
                try:
                    for event in text:
                        if isinstance(event, Tokens):
                            if event.position != len(text.prompt_ids) + len(tokens):
                                self.faults.append(f"{what}: position {event.position} after {len(tokens)} tokens")
                            tokens += [token.id for token in event.tokens]
                except Exception as error:  # whatever it is, the text is lost
                    begins = any(tokens == each[: len(tokens)] for each in may_be)
                    if not turning or not isinstance(error, ModelChanged) or not begins:
                        self.faults.append(f"{what}: lost after {len(tokens)} tokens: {error!r}")
                    self.happened.append("texts that another model could not go on with")
                    continue
                if tokens not in may_be:
                    self.faults.append(f"{what}: changed: {tokens}")
                self.happened += ["texts resumed"] * bool(text.stats.resumed)
                self.tokens.append(len(tokens))

    def by_endpoint(self, number: int, url: str, may_break: bool, decode: Callable[[list[int]], str]) -> None:
        """Stream texts from an endpoint of OpenAI's until all is over. `may_break`: whether a stream may."""
        rng = random.Random(number)
        with httpx.Client(timeout=60, trust_env=False) as http:
            while not self.over.is_set():
                length, seed = rng.choice(LENGTHS), rng.randrange(SEEDS)
                what = f"client {number}, {length} tokens, seed {seed}"
                body = {"prompt": PROMPT, "max_tokens": length, "seed": seed, "temperature": 0.8 * (seed % 2)}
                text, why, whole = "", None, decode(self.expected[0][seed][:length])
                try:
                    with http.stream("POST", f"{url}/v1/completions", json=body | {"stream": True}) as reply:
                        refused = None if reply.is_success else f"{reply.status_code}: {reply.read()[:300]!r}"
                        text, why = ("", refused) if refused else completion(reply.iter_lines())
                except httpx.TransportError as error:
                    why = repr(error)
                if not whole.startswith(text) or (why is None and text != whole):
                    self.faults.append(f"{what}: changed: {text!r} is not {whole!r}")
                elif why is None:
                    self.tokens.append(length)
                elif may_break:
                    self.happened.append("streams of a plain client that broke, and were asked for again")
                    self.over.wait(0.2)
                else:
                    self.faults.append(f"{what}: lost after {text!r}: {why}")


def _listening(port: int) -> list[int]:
    """The processes of a Python program that was started with this port."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended
            if entry.name.isdecimal() and f"-m\0specpair\0router\0--port\0{port}\0" in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


def run(seconds: float, seed: int, way: str) -> tuple[list[str], list[str]]:
    """Run for the given time. `way`: the router. Returns results and faults."""
    rng, happened, texts = random.Random(seed), Counter[str](), Texts()
    timers, before = list[threading.Timer](), dict[int, Held]()
    own = Held.by(os.getpid())._replace(memory=inf)  # its draft models come later
    with ExitStack() as stack:
        machines, turning = [Machine(stack) for _ in range(3)], Machine(stack)
        targets = itertools.cycle((DEFAULT_TARGET, OTHER))
        for each in machines:
            each.start()
        turning.start(next(targets))
        assert wait_until(lambda: all(each.is_ready for each in (*machines, turning)), START), "no verifiers"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        router, port = free_port(), free_port()
        urls = {"list": ",".join(each.url for each in machines), "turning": turning.url}
        urls["router"] = stack.enter_context(
            routing(FILES[way](folder, router, [each.port for each in machines]), router)
        )
        serve = ("-m", "drafter_client", "serve", "--verifier", urls["router"], "--port", str(port), "--threads", "1")
        serving = stack.enter_context(child(*serve, stdout=DEVNULL, stderr=DEVNULL))
        endpoint = f"http://127.0.0.1:{port}"
        assert wait_until(lambda: _health(endpoint).get("status") == "ready", START), "drafter serve did not start"
        vocabulary = stack.enter_context(closing(load("llama_cpp", LoadOptions(model=DEFAULT_TARGET)))).vocabulary

        def decode(tokens: list[int]) -> str:
            return vocabulary.decode([each for each in tokens if each not in vocabulary.ends]).decode(errors="replace")

        def disturb_all() -> None:
            """Have one thing happen after another, for so long or until the first fault."""
            nonlocal own
            until = time.monotonic() + seconds
            for events in itertools.count(1):
                texts.over.wait(min(PAUSE, max(0.0, until - time.monotonic())))
                if time.monotonic() >= until or texts.faults:
                    return
                if not before and len(texts.tokens) > 20:
                    before.update({each: Held.by(each) for each in (serving.pid, *_listening(router))})
                    own = own._replace(memory=Held.by(os.getpid()).memory)
                if events % 5 == 0 and turning.is_ready:
                    turning.tell(signal.SIGKILL)
                    turning.start(next(targets))
                    happened["another model"] += 1
                else:
                    happened[disturb(machines, rng, timers)] += 1

        with ThreadPoolExecutor(len(KINDS) + 3) as threads:
            writing = [
                threads.submit(texts.by_library, number, kind, urls[kind.way]) for number, kind in enumerate(KINDS)
            ]
            clients = ((100, endpoint, False), (101, endpoint, False), (102, urls["router"], True))
            writing += [threads.submit(texts.by_endpoint, *client, decode) for client in clients]
            try:
                disturb_all()
            finally:
                texts.over.set()
                for timer in timers:
                    timer.join()
            for text in writing:
                text.result()
        faults = list(texts.faults)
        for each in machines:  # one that drains ends meanwhile
            if not wait_until(lambda machine=each: machine.rests, AT_REST):  # type: ignore[misc]
                faults.append(f"left at a verifier: {_health(each.url)}")
        for pid, held in before.items():
            if not wait_until(lambda pid=pid, held=held: not Held.by(pid).more_than(held), AT_REST):  # type: ignore[misc]
                faults.append(f"process {pid} holds more: {Held.by(pid).more_than(held)}")
    if at_rest := Held.by(os.getpid()).more_than(own):
        faults.append(f"this process holds more than before: {at_rest}")
    told = {"texts": len(texts.tokens), "tokens": sum(texts.tokens), **Counter(texts.happened)}
    figures = (happened, told, {"texts lost or changed": len(texts.faults)})
    return [", ".join(f"{what} {count}" for what, count in sorted(each.items())) for each in figures], faults
