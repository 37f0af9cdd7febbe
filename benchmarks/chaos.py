"""Verifiers behind one address are killed, drained, cut off and added, for minutes: each text has to be the target's.

Method. Three scripted verifiers with passes of 20 ms on loopback, named to the drafters in a list, or behind a router.
`--drafters` drafters write one text after the other, in turn by the target alone, with a draft model on their side, and
by lookup; greedily and at temperature 0.8, with seeds. Every `--pause` seconds one of these happens to a verifier drawn
at random, but never to the last one that is up:

- killed: SIGKILL, in the middle of its texts; it stays away until a later event adds it;
- drained: SIGTERM; it ends when its texts have left or are written, and stays away, too;
- cut off: SIGSTOP for `--cut-off` seconds; the connections stay, and nothing answers, as when a network is parted;
- added: one that is away is started on its port.

On Ray Serve, which puts another verifier in the place of one that has ended, they are only killed and cut off.

Each text is compared with the target's own. A gap is the time from some tokens of a text to the next ones. A run fails
on any text that is lost, with an error, or changed.

    python -m benchmarks.chaos [--way list|nginx|envoy|specpair|ray] [--seconds 600] [--drafters 16] [--pause 4]
        [--seed 0] [--cut-off 4] [--events added killed drained cut-off] [--name chaos_specpair]
"""

import os
import random
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import ClassVar

from backends.scripted import Script, ScriptedBackend
from benchmarks.fail_over import APPLICATION, PROMPT, on_ray, reached, written
from benchmarks.harness.report import Report, options_of
from drafter_client import DraftModel, Lookup, Mode, Options, Pair
from drafter_client.errors import DrafterError
from drafter_client.http.client import VerifierClient
from specpair.child_processes.children import child
from specpair.child_processes.serving import variables
from tests.deploy.routers import free_port
from tests.drafter_client.support import plain

DRAIN = 5  # seconds in which a drained verifier's texts may be finished
LENGTHS = (40, 90, 200)  # tokens of a text
SEEDS = 8
EVENTS = ("added", "killed", "drained", "cut-off")
KINDS = (
    (None, Mode.TARGET),
    (DraftModel(Path("1"), "scripted"), Mode.REMOTE),
    (Lookup(), Mode.REMOTE),
)


@dataclass(frozen=True)
class Replica:
    """One verifier on Ray Serve."""

    pid: int
    is_away: ClassVar[bool] = False
    is_ready: ClassVar[bool] = True

    def start(self) -> None: ...

    def tell(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # it may have ended meanwhile
            os.kill(self.pid, number)


class Machine:
    """One verifier on a port of its own."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self.port = stack, free_port()
        self._process: Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_away(self) -> bool:
        """Whether its process has ended."""
        return self._process is None or self._process.poll() is not None

    @property
    def is_ready(self) -> bool:
        if self.is_away:
            return False
        try:
            with closing(VerifierClient(self.url)) as client:
                return client.health().ready
        except DrafterError:
            return False

    def start(self) -> None:
        command = ("-m", "uvicorn", "--factory", APPLICATION.removesuffix("()"), "--port", str(self.port))
        environment = os.environ | variables(drain_seconds=DRAIN)
        self._process = self._stack.enter_context(
            child(*command, environment=environment, stdout=DEVNULL, stderr=DEVNULL)
        )

    def tell(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


@dataclass
class Outcome:
    """What became of the texts. Used by several threads, each of which adds to lists."""

    gaps: list[float] = field(default_factory=list)  # the longest of each text, in seconds
    resumed: list[bool] = field(default_factory=list)  # whether each text went on elsewhere, or later
    tokens: list[int] = field(default_factory=list)  # of each text
    faults: list[str] = field(default_factory=list)


@cache
def expected(length: int, seed: int) -> list[int]:
    target, asked = ScriptedBackend(Script(seed=1)), options_for(length, seed)
    return plain(target, target.vocabulary.encode(PROMPT), length, asked.sampling)


def options_for(length: int, seed: int, mode: Mode = Mode.TARGET) -> Options:
    return Options(max_tokens=length, temperature=0.8 * (seed % 2), seed=seed, mode=mode)


def drafter(number: int, url: str, over: threading.Event, outcome: Outcome) -> None:
    """Write texts until `over` is set."""
    rng, (source, mode) = random.Random(number), KINDS[number % len(KINDS)]
    with Pair(url, source, on_notice=lambda _: None) as pair:
        while not over.is_set():
            length, seed = rng.choice(LENGTHS), rng.randrange(SEEDS)
            try:
                text = written(pair, options_for(length, seed, mode), lambda _: None)
            except Exception as error:  # whatever it is, the text is lost
                outcome.faults.append(f"lost, mode {mode}, {length} tokens, seed {seed}: {error!r}")
                continue
            if text.tokens != expected(length, seed):
                outcome.faults.append(f"changed, mode {mode}, {length} tokens, seed {seed}: {text.tokens}")
            outcome.gaps.append(text.gap)
            outcome.resumed.append(text.resumed)
            outcome.tokens.append(len(text.tokens))


def disturb(machines: Sequence[Machine | Replica], rng: random.Random, events: list[str], cut_off: float) -> str:
    """Have one of the `events` happen; returns which. `cut_off`: seconds."""
    ready = [each for each in machines if each.is_ready]
    away = [each for each in machines if each.is_away]
    possible = ["added"] * bool(away) + ["killed", "drained", "cut-off"] * (len(ready) > 1)
    possible = [each for each in possible if each in events]
    if not possible:
        return "nothing, as one is left"
    what = rng.choice(possible)
    one = rng.choice(away if what == "added" else ready)
    if what == "added":
        one.start()
    elif what == "killed":
        one.tell(signal.SIGKILL)
    elif what == "drained":
        one.tell(signal.SIGTERM)
    else:
        one.tell(signal.SIGSTOP)
        timer = threading.Timer(cut_off, one.tell, [signal.SIGCONT])
        timer.daemon = True
        timer.start()
    return what


def main() -> None:
    flags = {"way": "nginx", "seconds": 600.0, "drafters": 16, "pause": 4.0, "seed": 0, "cut-off": 4.0}
    several = {"events": {"nargs": "+", "choices": EVENTS, "default": [*EVENTS]}, "name": {"default": None}}
    options = options_of(__doc__, flags | several)
    report = Report("chaos", options, options.name or f"chaos_{options.way}")
    rng, outcome, over, happened = random.Random(options.seed), Outcome(), threading.Event(), Counter[str]()
    with ExitStack() as stack:
        machines: Callable[[], Sequence[Machine | Replica]]
        if options.way == "ray":
            ray = stack.enter_context(on_ray())
            events = [each for each in options.events if each in ("killed", "cut-off")]
            url, machines = ray.url, lambda: [Replica(pid) for pid in ray.replicas]
        else:
            events, started = options.events, [Machine(stack) for _ in range(3)]
            for each in started:
                each.start()
            while not all(each.is_ready for each in started):
                over.wait(0.1)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = stack.enter_context(reached(options.way, [each.port for each in started], folder))
            machines = partial(list, started)
        threads = stack.enter_context(ThreadPoolExecutor(options.drafters))
        writing = [threads.submit(drafter, number, url, over, outcome) for number in range(options.drafters)]
        for _ in range(int(options.seconds / options.pause)):
            over.wait(options.pause)
            happened[disturb(machines(), rng, events, options.cut_off)] += 1
        over.set()
        for text in writing:
            text.result()
    report.line(
        "verifiers " + ", ".join(f"{what} {count}" for what, count in sorted(happened.items())),
        f"{len(outcome.tokens)} texts, {sum(outcome.tokens)} tokens, {sum(outcome.resumed)} texts resumed;"
        f" longest gap {max(outcome.gaps):.2f} s",
        *outcome.faults[:20],
        f"{len(outcome.faults)} texts lost or changed",
    )
    report.save()
    if outcome.faults:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
