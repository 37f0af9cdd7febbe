"""Where the time of a round goes that is neither a pass, nor a draft step, nor the network.

Method. A verifier in its own process whose target takes 25 ms a step, and a drafter in this one that takes 8 ms a token
(`simulation.paced`), both real models, over loopback without a relay, as users get them. Both processes note
moments on the machine's one monotonic clock, at the same few places of the code, which are wrapped for it. Printed are
the medians and the 90th percentiles of the ways between them, in milliseconds; `idle` is what the verifier's engine
did nothing between two passes.

    python -m benchmarks.round_profile [--tokens 257] [--prompts 2]
"""

import argparse
import functools
import itertools
import json
import math
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.drafters import CONTEXT, stable
from benchmarks.extras import need
from benchmarks.harness import held_out_prompts
from benchmarks.report import Report, add_save, plot
from benchmarks.serving import serve
from drafter_client.cli.program import SWITCH_INTERVAL
from drafter_client.generation import executors, loop, start
from drafter_client.http.client import VerifierClient
from drafter_client.metrics.statistics import Stats
from simulation import paced
from speculation.sampling.sampling import Sampling
from verifier_server.api import server_sent_events
from verifier_server.engine.engine import Engine
from verifier_server.engine.scheduler import Scheduler

if TYPE_CHECKING:
    from fastapi import FastAPI

    app: FastAPI

_STAMPS = "PROFILE_STAMPS"  # the file that the verifier writes its moments to
_AT_ONCE = 5e-3  # seconds; a step that begins later than that was not wanted before
_clock = time.perf_counter

Stamps = dict[str, dict[Any, float]]  # what happened, of which text position or guess: when


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=257)
    parser.add_argument("--prompts", type=int, default=2)
    add_save(parser)
    options = parser.parse_args()
    need("matplotlib")
    sys.setswitchinterval(SWITCH_INTERVAL)
    report = Report("round_profile", options)
    ways: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, stable(["twin"]) as models:
        stamps_file = Path(folder) / "stamps"
        settings = {"PACED_TARGET": str(paced.TARGET_25), "VERIFIER_THREADS": "1", "VERIFIER_CONTEXT": str(CONTEXT)}
        with (
            serve("benchmarks.round_profile:app", {**settings, _STAMPS: str(stamps_file)}) as server,
            closing(VerifierClient(server.url)) as client,
        ):
            client.wait_until_ready()
            info = client.model()
            client.ping()
            for seed, prompt in enumerate(held_out_prompts(options.prompts)):
                sampling = Sampling(seed, 1.0)
                drafter = models.drafter("twin", paced.DRAFTER_8, sampling)
                request = {"max_tokens": options.tokens, "temperature": 1.0, "seed": seed}
                with _watched() as ours:
                    run = start.speculate(
                        client, drafter, models.encode(prompt), request, info, Stats(), time.perf_counter
                    )
                    for _ in run:
                        pass
                _measure(ours, _read(stamps_file), ways)
    figures = {name: (1e3 * median(taken), 1e3 * sorted(taken)[int(0.9 * len(taken))]) for name, taken in ways.items()}
    for name, (p50, p90) in figures.items():
        report.line(f"{name:44} {len(ways[name]):5} times  p50 {p50:6.2f}  p90 {p90:6.2f}")
    report.save()
    figure(figures, report.beside(".png"))


def figure(figures: dict[str, tuple[float, float]], file: Path) -> None:
    """Draw the median and the 90th percentile of each way, in ms."""
    with plot(file) as [[axes]]:
        for place, percentile in enumerate(("p50", "p90")):
            heights = [number + 0.4 * place for number in range(len(figures))]
            axes.barh(heights, [each[place] for each in figures.values()], height=0.4, label=percentile)
        axes.set_yticks([number + 0.2 for number in range(len(figures))], list(figures), fontsize=6)
        axes.invert_yaxis()
        axes.set(xlabel="ms")
        axes.legend(fontsize=6)


def _measure(ours: Stamps, theirs: list[list[Any]], ways: dict[str, list[float]]) -> None:
    """Add up one text: `theirs` are the verifier's moments, each [what, which, when]."""
    passes = [(which, when) for what, which, when in theirs if what == "pass"]
    by_place: Stamps = defaultdict(dict)
    for what, which, when in theirs:
        by_place[what].setdefault(tuple(which) if isinstance(which, list) else which, when)
    for place, over in by_place["over"].items():
        ways["pass over -> judged and told"].append(by_place["told"][place] - over)
        if place in by_place["streamed"]:
            ways["pass over -> news written"].append(by_place["streamed"][place] - over)
        if place in ours["taken in"]:
            ways["pass over -> drafter takes it in"].append(ours["taken in"][place] - over)
    for place, taken in ours["taken in"].items():
        ways["takes it in -> knows it"].append(ours["known"][place] - taken)
    for guess, decided in ours["decided"].items():
        if guess in by_place["submitted"]:
            ways["guess decided -> with the engine"].append(by_place["submitted"][guess] - decided)
    for number, ended in ours["drafted"].items():
        ways["draft step"].append(ended - ours["begun"][number])
        following = ours["begun"].get(number + 1, math.inf) - ended
        if following < _AT_ONCE:
            ways["draft step ended -> next one begun"].append(following)
    for (_, ended), (began, _) in itertools.pairwise(passes):
        ways["idle between passes"].append(began - ended)


@contextmanager
def _watched() -> Iterator[Stamps]:
    """Note the drafter's moments while the block lasts."""
    stamps: Stamps = defaultdict(dict)
    commit, threads = loop.GenerationLoop._commit, start.Threads
    steps = itertools.count()

    def noted(run: Any, position: int, tokens: list[int], *rest: Any) -> Any:
        stamps["taken in"].setdefault(position + len(tokens), _clock())
        result = commit(run, position, tokens, *rest)
        stamps["known"].setdefault(position + len(tokens), _clock())
        return result

    class Watched(executors.ThreadedExecutor):
        def __init__(self, client: VerifierClient, drafter: Any, *rest: Any) -> None:
            expand = drafter.expand

            def timed(*args: Any) -> Any:
                number = next(steps)
                stamps["begun"][number] = _clock()
                result = expand(*args)
                stamps["drafted"][number] = _clock()
                return result

            drafter.expand = timed
            super().__init__(client, drafter, *rest)

        def send(self, in_flight_draft: Any) -> None:
            stamps["decided"].setdefault((in_flight_draft.position, len(in_flight_draft.drafts)), _clock())
            super().send(in_flight_draft)

    loop.GenerationLoop._commit, start.Threads = noted, Watched  # type: ignore[method-assign,assignment,misc]
    try:
        yield stamps
    finally:
        loop.GenerationLoop._commit, start.Threads = commit, threads  # type: ignore[method-assign,misc]


def _read(path: Path) -> list[list[Any]]:
    """The moments written since the last time."""
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("", encoding="utf-8")
    return [json.loads(line) for line in lines]


@functools.cache
def application() -> "FastAPI":
    """A paced verifier that notes its moments."""
    path = os.environ[_STAMPS]
    file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 for as long as the process lives

    def note(what: str, which: Any, when: float) -> None:
        file.write(json.dumps([what, which, when]) + "\n")

    conclude, submit, due = Scheduler.conclude, Engine.submit, server_sent_events.CommittedStream._next

    @functools.wraps(conclude)
    def concluded(scheduler: Scheduler, plan: Any, logits: Any, began: float, ended: float) -> None:
        conclude(scheduler, plan, logits, began, ended)
        told = _clock()
        note("pass", began, ended)
        for part in plan.parts:
            note("over", len(part.sequence.session.tokens), ended)
            note("told", len(part.sequence.session.tokens), told)

    def submitted(engine: Engine, job: Any) -> None:
        note("submitted", (job.position, len(job.drafts)), _clock())
        submit(engine, job)

    def streamed(stream: Any) -> Any:
        chunk, more = due(stream)
        if chunk:
            note("streamed", stream._sent, _clock())
        return chunk, more

    Scheduler.conclude, Engine.submit = concluded, submitted  # type: ignore[method-assign]
    server_sent_events.CommittedStream._next = streamed  # type: ignore[method-assign]
    return paced.application()


def __getattr__(name: str) -> "FastAPI":
    if name == "app":
        return application()
    raise AttributeError(name)


if __name__ == "__main__":
    main()
