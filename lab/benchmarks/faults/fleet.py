"""Verifiers with the pair that ships are killed, drained, cut off and added, for minutes: each text has to be the
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
import json
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from subprocess import DEVNULL
from typing import NamedTuple

import httpx

from backends.registry import load
from drafter_client import DraftModel, Lookup, Mode, Options, Pair, Tokens
from drafter_client.draft_sources import Source
from drafter_client.errors import DrafterError, ModelChanged
from drafter_client.http.client import VerifierClient
from lab.benchmarks.faults.machines import PAUSE, Held, Machine, disturb, left, routers, wait_until
from models import DEFAULT_TARGET
from specpair.child_processes.children import child
from specpair.engines.load_options import LoadOptions
from tests.deploy.routers import FILES, free_port, routing
from tests.drafter_client.support import plain

PROMPT = "def f(x):"
OTHER = DEFAULT_TARGET.with_name("stdlib-target-q4_0.gguf")  # the model that takes the fourth address by turns
LENGTHS = (20, 60, 120)  # tokens of a text
SEEDS = 6
Texts = dict[tuple[str, int], list[int]]  # by the target's name and the seed; the longest ones


@dataclass
class Outcome:
    """What became of the texts. Used by several threads, each of which adds to lists."""

    expected: Texts
    over: threading.Event = field(default_factory=threading.Event)
    tokens: list[int] = field(default_factory=list)  # of each text
    gaps: list[float] = field(default_factory=list)  # the longest of each text, in seconds
    resumed: list[int] = field(default_factory=list)  # how often each text went on elsewhere, or later
    refused: list[str] = field(default_factory=list)  # texts that another model could not go on with
    broken: list[str] = field(default_factory=list)  # streams of a plain client that broke
    faults: list[str] = field(default_factory=list)

    def texts(self, seed: int, length: int, models: Sequence[str]) -> list[list[int]]:
        return [self.expected[each, seed][:length] for each in models]


class Kind(NamedTuple):
    """What a drafter drafts with, in which mode, and the way to its verifiers."""

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


def plain_texts() -> Texts:
    """The texts of both targets by plain decoding."""
    texts: Texts = {}
    for model in (DEFAULT_TARGET, OTHER):
        options = LoadOptions(model=model, deterministic=True, threads=1, context_length=512)
        with closing(load("llama_cpp", options)) as target:
            prompt = target.vocabulary.encode(PROMPT)
            for seed in range(SEEDS):
                sampling = _options(max(LENGTHS), seed).sampling
                texts[target.model_name, seed] = plain(target, prompt, max(LENGTHS), sampling)
    return texts


def _options(length: int, seed: int, mode: Mode = Mode.TARGET) -> Options:
    return Options(max_tokens=length, temperature=0.8 * (seed % 2), seed=seed, mode=mode)


def drafter(number: int, kind: Kind, url: str, outcome: Outcome) -> None:
    """Write texts until all is over."""
    rng = random.Random(number)
    models = [name for name, _ in outcome.expected]
    with Pair(url, kind.source, on_notice=lambda _: None) as pair:
        while not outcome.over.is_set():
            length, seed = rng.choice(LENGTHS), rng.randrange(SEEDS)
            what = f"drafter {number}, {kind.way}, mode {kind.mode}, {length} tokens, seed {seed}"
            tokens, gap, last = list[int](), 0.0, None
            text = pair.generate(PROMPT, _options(length, seed, kind.mode))
            start = len(text.prompt_ids)
            may_be = outcome.texts(seed, length, models if kind.way == "turning" else models[:1])
            try:
                for event in text:
                    if isinstance(event, Tokens):
                        now = time.perf_counter()
                        gap, last = max(gap, 0.0 if last is None else now - last), now
                        if event.position != start + len(tokens):
                            outcome.faults.append(f"{what}: position {event.position} after {len(tokens)} tokens")
                        tokens += [token.id for token in event.tokens]
            except Exception as error:  # whatever it is, the text is lost
                begins = any(tokens == each[: len(tokens)] for each in may_be)
                if kind.way != "turning" or not isinstance(error, ModelChanged) or not begins:
                    outcome.faults.append(f"{what}: lost after {len(tokens)} tokens: {error!r}")
                outcome.refused.append(what)
                continue
            if tokens not in may_be:
                outcome.faults.append(f"{what}: changed: {tokens}")
            outcome.gaps.append(gap)
            outcome.resumed.append(len(text.stats.resumed))
            outcome.tokens.append(len(tokens))


def client(number: int, url: str, may_break: bool, outcome: Outcome, decode: Callable[[list[int]], str]) -> None:
    """Stream texts from an endpoint of OpenAI's until all is over. `may_break`: whether a stream may."""
    rng, models = random.Random(number), [name for name, _ in outcome.expected]
    with httpx.Client(timeout=60, trust_env=False) as http:
        while not outcome.over.is_set():
            length, seed = rng.choice(LENGTHS), rng.randrange(SEEDS)
            what = f"client {number}, {length} tokens, seed {seed}"
            body = {"prompt": PROMPT, "max_tokens": length, "seed": seed, "temperature": 0.8 * (seed % 2)}
            [expected] = outcome.texts(seed, length, models[:1])
            text, why = _streamed(http, f"{url}/v1/completions", body | {"stream": True})
            whole = decode(expected)
            if not whole.startswith(text) or (why is None and text != whole):
                outcome.faults.append(f"{what}: changed: {text!r} is not {whole!r}")
            elif why is None:
                outcome.tokens.append(len(expected))
            elif may_break:
                outcome.broken.append(what)
                outcome.over.wait(0.2)
            else:
                outcome.faults.append(f"{what}: lost after {text!r}: {why}")


def _streamed(http: httpx.Client, url: str, body: dict[str, object]) -> tuple[str, str | None]:
    """The text that came, and why it is not whole; None: it is."""
    text, ended = "", False
    try:
        with http.stream("POST", url, json=body) as reply:
            if reply.status_code != 200:
                return "", f"{reply.status_code}: {reply.read()[:300]!r}"
            for line in reply.iter_lines():
                if line == "data: [DONE]":
                    return text, None if ended else "[DONE] came before the end"
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    if "error" in event:
                        return text, line
                    text += "".join(each["text"] for each in event["choices"])
                    ended = ended or any(each["finish_reason"] for each in event["choices"])
    except httpx.TransportError as error:
        return text, repr(error)
    return text, "the stream ended without [DONE]"


def _ready(url: str) -> bool:
    try:
        with closing(VerifierClient(url)) as asking:
            return asking.health().ready
    except DrafterError:
        return False


def run(seconds: float, seed: int, way: str) -> tuple[list[str], list[str]]:
    """Run for so long. `way`: the router. Returns figures, and faults."""
    rng, happened = random.Random(seed), Counter[str]()
    outcome, timers = Outcome(plain_texts()), list[threading.Timer]()
    own, before = Held.by(os.getpid())._replace(memory=inf), dict[int, Held]()  # its draft models come later
    with ExitStack() as stack:
        machines = [Machine(stack) for _ in range(3)]
        turning, targets = Machine(stack), itertools.cycle((DEFAULT_TARGET, OTHER))
        for each in machines:
            each.start()
        turning.start(next(targets))
        assert wait_until(lambda: all(each.is_ready for each in (*machines, turning)), 120), (
            "the verifiers did not start"
        )
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port, ports = free_port(), [each.port for each in machines]
        urls = {"list": ",".join(each.url for each in machines), "turning": turning.url}
        urls["router"] = stack.enter_context(routing(FILES[way](folder, port, ports), port))
        port = free_port()
        serving = stack.enter_context(
            child(
                *("-m", "drafter_client", "serve", "--verifier", urls["router"], "--port", str(port), "--threads", "1"),
                stdout=DEVNULL,
                stderr=DEVNULL,
            )
        )
        endpoint = f"http://127.0.0.1:{port}"
        assert wait_until(lambda: _ready(endpoint), 120), "drafter serve did not start"
        vocabulary = stack.enter_context(closing(load("llama_cpp", LoadOptions(model=DEFAULT_TARGET)))).vocabulary

        def decode(tokens: list[int]) -> str:
            return vocabulary.decode([each for each in tokens if each not in vocabulary.ends]).decode(errors="replace")

        with ThreadPoolExecutor(len(KINDS) + 3) as threads:
            writing = [
                threads.submit(drafter, number, kind, urls[kind.way], outcome) for number, kind in enumerate(KINDS)
            ]
            writing += [threads.submit(client, number, endpoint, False, outcome, decode) for number in (100, 101)]
            writing.append(threads.submit(client, 102, urls["router"], True, outcome, decode))
            lasting = [serving.pid, *routers()]
            until, events = time.monotonic() + seconds, 0
            try:
                while time.monotonic() < until and not outcome.faults:
                    outcome.over.wait(min(PAUSE, max(0.0, until - time.monotonic())))
                    events += 1
                    if not before and len(outcome.tokens) > 20:
                        before = {each: Held.by(each) for each in lasting}
                        own = own._replace(memory=Held.by(os.getpid()).memory)
                    if events % 5 == 0 and turning.is_ready:
                        turning.kill()
                        turning.start(next(targets))
                        happened["another model"] += 1
                    else:
                        happened[disturb(machines, rng, timers)] += 1
            finally:
                outcome.over.set()
                for timer in timers:
                    timer.join()
            for text in writing:
                text.result()
        faults = [*outcome.faults, *left(machines, before)]
    if at_rest := Held.by(os.getpid()).more_than(own):
        faults.append(f"this process holds more than before: {at_rest}")
    figures = [
        ", ".join(f"{what} {count}" for what, count in sorted(happened.items())),
        f"{len(outcome.tokens)} texts, {sum(outcome.tokens)} tokens, {sum(map(bool, outcome.resumed))} texts resumed;"
        f" longest gap {max(outcome.gaps, default=0.0):.2f} s",
        f"{len(outcome.refused)} texts that another model could not go on with, {len(outcome.broken)} streams of a"
        " plain client broken, and asked for again",
        f"{len(outcome.faults)} texts lost or changed",
    ]
    return figures, faults
