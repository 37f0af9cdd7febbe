"""How much three verifiers behind a router generate, of what three times one verifier generates.

Method. Scripted verifiers with a few slots and passes of 50 ms on loopback. There are as many texts as slots. All are
begun at once, and the verifiers generate them (mode target), so that this process only reads. Tokens of a second are
counted from the first begin to the last end: with one verifier, and with three behind each router that is installed.
`specpair router` runs with each of its policies. Ray Serve, where this Python has it, starts three replicas of its own.
One verifier is measured before and after; the better run counts.

    python -m lab.benchmarks.replicas [--slots 8] [--tokens 100]
"""

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI

from backends.scripted import Script, ScriptedBackend
from drafter_client import Mode, Options, Pair, Tokens
from drafter_client.http.client import VerifierClient
from gateway.balancing.policies import POLICIES
from lab.benchmarks.harness.report import Report, options_of
from specpair.child_processes.serving import serve
from tests.deploy.ray_serve import cluster
from tests.deploy.routers import FILES, OURS, free_port, program, routing
from verifier_server.app import create_app
from verifier_server.settings import Settings

PACE = 0.05  # seconds a pass
SLOTS = "BENCHMARK_SLOTS"  # the variable that tells the verifiers
COUNT = 3


def paced() -> FastAPI:
    """A verifier with passes of 50 ms."""
    script = Script(seed=1, seconds_per_pass=PACE)
    return create_app(Settings(backend="scripted"), ScriptedBackend(script, slots=int(os.environ[SLOTS])))


def tokens_per_second(url: str, texts: int, tokens: int) -> float:
    """Generate so many texts at once."""

    def generated(seed: int) -> int:
        options = Options(max_tokens=tokens, temperature=0.8, seed=seed, mode=Mode.TARGET)
        events = pair.generate("def f(x):", options)
        return sum(len(event.tokens) for event in events if isinstance(event, Tokens))

    with Pair(url, None, texts=texts) as pair, ThreadPoolExecutor(texts) as threads:
        began = time.perf_counter()
        count = sum(threads.map(generated, range(texts)))
        return count / (time.perf_counter() - began)


def main() -> None:
    options = options_of(__doc__, {"slots": 8, "tokens": 100})
    with_ray = find_spec("ray") is not None
    report = Report("replicas", options, "replicas_ray" if with_ray else "replicas")
    with ExitStack() as stack:
        environment = {SLOTS: str(options.slots)}
        servers = [stack.enter_context(serve("lab.benchmarks.replicas:paced()", environment)) for _ in range(COUNT)]
        for each in servers:
            with closing(VerifierClient(each.url)) as client:
                client.wait_until_ready()
        ports = [int(each.url.rpartition(":")[2]) for each in servers]
        alone = tokens_per_second(servers[0].url, options.slots, options.tokens)
        found: dict[str, float] = {}
        for name in FILES:
            if program(name) is None:
                report.line(f"{name}: not installed")
                continue
            for policy in POLICIES if name == OURS else [""]:
                port = free_port()
                with tempfile.TemporaryDirectory() as folder:
                    command = FILES[name](Path(folder), port, ports) + (["--policy", policy] if policy else [])
                    with routing(command, port) as url:
                        found[f"{name} {policy}"] = tokens_per_second(url, COUNT * options.slots, options.tokens)
        if not with_ray:
            report.line("ray: not installed")
        else:
            with cluster() as ray:
                ray.deploy(COUNT, "lab.benchmarks.harness.paced_replicas:app", **environment)
                ray.wait_until_healthy(COUNT)
                found["ray"] = tokens_per_second(ray.url, COUNT * options.slots, options.tokens)
        alone = max(alone, tokens_per_second(servers[0].url, options.slots, options.tokens))
        report.line(f"one verifier: {alone:.0f} tokens/s")
        for name, rate in found.items():
            report.line(f"{name:25} {rate:.0f} tokens/s, {rate / alone / COUNT:.2f} of linear")
    report.save()


if __name__ == "__main__":
    main()
