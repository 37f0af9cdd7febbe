"""What a lost verifier costs: one of three is killed in the middle of many texts, and started again.

Method. Three scripted verifiers with passes of 20 ms on loopback, named to the drafter in a list, or behind a router:
nginx and Envoy with the files in deploy/, `specpair router`. Ray Serve, where this Python has it, starts
verifiers of its own. All texts are begun at once. When a third of the tokens are there, the verifier that has the most
texts is killed, and another process is started on its port; on Ray any one is, and Ray starts another. Each text is
compared with the target's own. A gap is the time from some tokens of a text to the next ones; the longest without a
loss is measured before.

    python -m lab.benchmarks.fail_over [--texts 32] [--tokens 100] [--mode target]
"""

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from fastapi import FastAPI

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Mode, Options, Pair, Tokens
from drafter_client.http.client import VerifierClient
from lab.benchmarks.harness.report import Report, options_of
from specpair.child_processes.children import child
from specpair.child_processes.serving import Server, serve
from tests.deploy.ray_serve import Cluster, cluster
from tests.deploy.routers import FILES, free_port, program, routing
from tests.drafter_client.support import plain
from verifier_server.app import create_app
from verifier_server.settings import Settings

APPLICATION = "lab.benchmarks.fail_over:paced()"
PROMPT = "def f(x):"
PACE = 0.02  # seconds a pass


def paced() -> FastAPI:
    """A verifier with passes of 20 ms."""
    script = Script(seed=1, seconds_per_pass=PACE)
    return create_app(Settings(backend="scripted"), ScriptedBackend(script, slots=32))


class Written(NamedTuple):
    """One text: its tokens, its longest gap in seconds, and whether it was resumed."""

    tokens: list[int]
    gap: float
    resumed: bool


def written(pair: Pair, options: Options, count: Callable[[int], None]) -> Written:
    """Generate one text. `count`: is told how many tokens came."""
    tokens: list[int] = []
    gap, last = 0.0, None
    text = pair.generate(PROMPT, options)
    for event in text:
        if isinstance(event, Tokens):
            now = time.perf_counter()
            gap, last = max(gap, 0.0 if last is None else now - last), now
            tokens += [token.id for token in event.tokens]
            count(len(event.tokens))
    return Written(tokens, gap, bool(text.stats.resumed))


def run(pair: Pair, options: list[Options], after: int, then: Callable[[], None]) -> list[Written]:
    """Generate texts at once. `then`: called when there are `after` tokens in all."""
    there, lock, due = 0, threading.Lock(), threading.Event()

    def count(tokens: int) -> None:
        nonlocal there
        with lock:
            there += tokens
            if there >= after:
                due.set()

    with ThreadPoolExecutor(len(options)) as threads:
        writing = [threads.submit(written, pair, each, count) for each in options]
        due.wait(300)
        then()
        return [each.result() for each in writing]


class Fleet:
    """Three verifiers, any of which can be killed and started again on its port."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.servers: list[Server] = [stack.enter_context(serve(APPLICATION)) for _ in range(3)]
        for each in self.servers:
            with closing(VerifierClient(each.url)) as client:
                client.wait_until_ready()

    @property
    def ports(self) -> list[int]:
        return [int(each.url.rpartition(":")[2]) for each in self.servers]

    def kill_and_restart(self) -> None:
        """Do so with the verifier that has the most texts."""
        texts = []
        for each in self.servers:
            with closing(VerifierClient(each.url)) as client:
                texts.append(client.health().load.texts)
        number = texts.index(max(texts))
        process = self.servers[number].process
        process.kill()
        process.wait()
        # It opens its port itself: until then, connections are refused.
        command = ("-m", "uvicorn", "--factory", APPLICATION.removesuffix("()"), "--port", str(self.ports[number]))
        self._stack.enter_context(child(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


@contextmanager
def on_ray() -> Iterator[Cluster]:
    """Three verifiers with passes of 20 ms on Ray Serve."""
    with cluster() as ray:
        ray.deploy(3, "lab.benchmarks.harness.paced_replicas:fast")
        ray.wait_until_healthy(3)
        yield ray


def kill_replica(ray: Cluster) -> None:
    """Kill one replica, in whose place Ray starts another one."""
    os.kill(ray.replicas[0], signal.SIGKILL)


@contextmanager
def reached(way: str, ports: Sequence[int], folder: Path) -> Iterator[str]:
    """What the drafter names to reach the verifiers on these ports."""
    if way == "list":
        yield ",".join(f"http://127.0.0.1:{each}" for each in ports)
        return
    port = free_port()
    with routing(FILES[way](folder, port, ports), port) as url:
        yield url


def main() -> None:
    options = options_of(__doc__, {"texts": 32, "tokens": 100, "mode": "target"})
    with_ray = find_spec("ray") is not None
    report = Report("fail_over", options, "fail_over_ray" if with_ray else "fail_over")
    texts = [
        Options(max_tokens=options.tokens, temperature=0.8 * (seed % 2), seed=seed, mode=Mode(options.mode))
        for seed in range(options.texts)
    ]
    target = ScriptedBackend(Script(seed=1))
    prompt = target.vocabulary.encode(PROMPT)
    expected = [plain(target, prompt, each.max_tokens, each.sampling) for each in texts]
    after = options.texts * options.tokens // 3
    for way in ("list", *FILES, "ray"):
        if (way in FILES and program(way) is None) or (way == "ray" and not with_ray):
            report.line(f"{way}: not installed")
            continue
        with ExitStack() as stack:
            if way == "ray":
                ray = stack.enter_context(on_ray())
                url = ray.url
                kill: Callable[[], None] = partial(kill_replica, ray)
            else:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                fleet = Fleet(stack)
                url, kill = stack.enter_context(reached(way, fleet.ports, folder)), fleet.kill_and_restart
            source = DraftModel(Path("1"), "scripted")
            pair = stack.enter_context(Pair(url, source, texts=options.texts, on_notice=lambda _: None))
            calm = run(pair, texts, after, lambda: None)
            disturbed = run(pair, texts, after, kill)
        same = sum(each.tokens == due for each, due in zip(disturbed, expected, strict=True))
        report.line(
            f"{way:8} {same} of {len(texts)} texts the target's own, {sum(each.resumed for each in disturbed)} resumed;"
            f" longest gap {max(each.gap for each in disturbed):.2f} s"
            f" (without a loss {max(each.gap for each in calm):.2f} s)"
        )
    report.save()


if __name__ == "__main__":
    main()
