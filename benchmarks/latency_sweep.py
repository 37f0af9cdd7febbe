"""Tokens per second over every round-trip time, against the target alone, fixed lockstep, a reference and a bound.

Method. A verifier in its own process serves the default target, each forward pass stretched to what a large model
takes (`simulation.paced`: 80 or 25 ms a step, 2 % more for each further token); this process drafts with a draft model
stretched to 8 or 4 ms a token; between them lies a relay in a third process that adds the round-trip time
(`benchmarks.relay`). Tokens and agreement are those of the real models. The text is sampled at temperature 1 from
prompts out of files that no model here was trained on, 257 tokens each, the same for all columns: one seed a prompt.
Rates count from the first token known here to the last, the time to the first stands apart. Columns:

    target       the target alone (`/generate`), streamed over the same link
    k=4          four drafts, send, wait: what public REST pairs do
    ours         the default of `python -m drafter_client`: the middle of three runs
    -overlap … -adaptive   ours with one mechanism off
    reference    the best static policy in a replay of this text's agreement with the times measured in this cell: a
                 step of the drafter, the verifier's passes, and what an exchange took beyond them in the run of `k=4`
                 (`benchmarks.reference`: chosen with hindsight, and its decisions take no time)
    U            what no chain verification can beat

all but the first as multiples of what the target streams. A run is repeated, at most twice, where the machine lost
more than 10 % of the time meanwhile (`benchmarks.quiet`; 2 % in the first two columns, which others are measured by);
what was lost is kept with all figures, and the report leaves out what is over 10 % all the same. Each cell is written
to `latency_sweep.jsonl` as it ends, and a cell that is there already is not measured again, so that a sweep can be
taken up where it was left. `latency_sweep.txt` and `.png` are made of that file (`--report` makes them without
measuring). All lie in `.cache/results/`, with `--save` in `benchmarks/results/`.

With `--dilate N` a step, a draft and the round trip take N times as long, and what the machine and the interpreter add
counts for an Nth: what policy is worth, apart from how fast it is carried out here. Its results are in
`latency_sweep_xN.*`, a sweep of its own for each N.

    python -m benchmarks.latency_sweep [--targets 80 25] [--drafts 8 4] [--rtt 0.2 5 20 50 100] [--prompts 1]
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import sweep_report
from benchmarks.drafters import CONTEXT, NAMES, Stable, stable
from benchmarks.extras import need
from benchmarks.harness import held_out_prompts
from benchmarks.quiet import Watch, watch
from benchmarks.reference import Times, Trace, best, upper_bound
from benchmarks.relay import Link, relay
from benchmarks.report import add_save, results
from benchmarks.serving import serve
from drafter_client.cli.program import SWITCH_INTERVAL
from drafter_client.generation.resuming import released
from drafter_client.generation.start import speculate
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import ModelInfo
from drafter_client.metrics.statistics import Stats
from drafter_client.metrics.token_source import TokenSource
from simulation import paced
from simulation.paced import Cost
from speculation.policy.schedule import LOCKSTEP, Mechanisms
from speculation.sampling.sampling import Sampling

TARGETS = {80: paced.TARGET_80, 25: paced.TARGET_25}
DRAFTS = {8: paced.DRAFTER_8, 4: paced.DRAFTER_4}
TOKENS = 257
TEMPERATURE = 1.0
ALL = Mechanisms()
_LOST = {"target": 0.02, "k=4": 0.02}  # share of a run's time that may be lost
_TRIES = 3  # runs at most until it is less
_RUNS = {"ours": 3}  # of which the middle one counts
COLUMNS: dict[str, tuple[Mechanisms, int | None]] = {
    "k=4": (LOCKSTEP, 4),
    "ours": (ALL, None),
    "-overlap": (LOCKSTEP, None),
    "-in flight": (replace(ALL, in_flight=1), None),
    "-corrections": (replace(ALL, corrections=False), None),
    "-self-continue": (replace(ALL, self_continue=False), None),
    "-adaptive": (ALL, 4),
}


@dataclass(frozen=True)
class Sample:
    """One text by one method."""

    tokens: list[int]
    ttft_ms: float
    seconds: float  # from the first token to the last
    stats: Stats
    lost: float = 0.0  # share of the time in which the machine stood still

    @property
    def rate(self) -> float:
        return (len(self.tokens) - 1) / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--drafts", type=int, nargs="+", choices=DRAFTS, default=list(DRAFTS))
    parser.add_argument("--rtt", type=float, nargs="+", default=[0.2, 5, 20, 50, 100])
    parser.add_argument("--drafters", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=list(COLUMNS), help="`k=4` is always measured")
    parser.add_argument("--prompts", type=int, default=1)
    parser.add_argument("--dilate", type=float, default=1.0, metavar="N", help="make all times N times as long")
    parser.add_argument("--report", action="store_true", help="measure nothing, report what was measured")
    add_save(parser)
    options = parser.parse_args()
    need("matplotlib")
    file = results(options) / (
        "latency_sweep.jsonl" if options.dilate == 1.0 else f"latency_sweep_x{options.dilate:g}.jsonl"
    )
    if not options.report:
        _measure(options, file)
    sweep_report.write(sweep_report.read(file), file)


def _measure(options: argparse.Namespace, file: Path) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL)
    measured = {cell_key(cell) for cell in sweep_report.read(file)}
    with stable(options.drafters) as models, watch() as quiet:
        for target in options.targets:
            cost = TARGETS[target].dilated(options.dilate)
            settings = {"PACED_TARGET": str(cost), "VERIFIER_THREADS": "1", "VERIFIER_CONTEXT": str(CONTEXT)}
            with serve("simulation.paced:app", {**settings, "VERIFIER_ROWS": "4"}) as server:
                for rtt in options.rtt:
                    with relay(server.url, Link(rtt_ms=options.dilate * rtt)) as url:
                        for cell in _cells(url, models, quiet, target, rtt, options, measured):
                            _keep(cell, file)


def cell_key(cell: dict[str, Any]) -> tuple[Any, ...]:
    """What tells cells apart."""
    return cell["target_ms"], cell["draft_ms"], cell["rtt_ms"], cell["drafter"], cell["prompt"]


def _keep(cell: dict[str, Any], file: Path) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(cell) + "\n")
    figures = "  ".join(f"{name} {value:.2f}" for name, value in cell["ratios"].items())
    print(
        f"{cell['target_ms']} ms target, {cell['draft_ms']} ms drafter {cell['drafter']} ({cell['agreement']:.2f}), "
        f"RTT {cell['rtt_ms']:g}: target {cell['target_rate']:.2f}/s  {figures}",
        flush=True,
    )


def _cells(
    url: str,
    models: Stable,
    quiet: Watch,
    target: int,
    rtt: float,
    options: argparse.Namespace,
    measured: set[tuple[Any, ...]],
) -> Iterator[dict[str, Any]]:
    """Everything at one target and round-trip time."""
    with closing(VerifierClient(url)) as client:
        client.wait_until_ready()
        info = client.model()
        client.ping()
        for number, prompt in enumerate(held_out_prompts(options.prompts)):
            todo = [
                (draft, name)
                for draft in options.drafts
                for name in options.drafters
                if (target, draft, rtt, name, number) not in measured
            ]
            alone: Sample | None = None
            for draft, name in todo:
                prompt_ids = models.encode(prompt)
                alone = alone or _undisturbed(
                    quiet, "target", lambda ids=prompt_ids, seed=number: _alone(client, ids, seed)
                )
                cost = DRAFTS[draft].dilated(options.dilate)
                delay = options.dilate * rtt
                cell = _cell(client, info, models, quiet, cost, name, prompt_ids, number, alone, delay, options.columns)
                yield {"target_ms": target, "draft_ms": draft, "rtt_ms": rtt, "prompt": number, **cell}


def _cell(
    client: VerifierClient,
    info: ModelInfo,
    models: Stable,
    quiet: Watch,
    cost: Cost,
    name: str,
    prompt_ids: list[int],
    number: int,
    alone: Sample,
    rtt: float,
    columns: list[str],
) -> dict[str, Any]:
    sampling = Sampling(number, TEMPERATURE)
    runs: dict[str, list[Sample]] = {}
    for column in ["k=4", *(column for column in columns if column != "k=4")]:

        def run(column: str = column) -> Sample:
            mechanisms, length = COLUMNS[column]
            drafter = models.drafter(name, cost, sampling)
            return _ours(client, info, drafter, prompt_ids, number, mechanisms, length)

        made = [_undisturbed(quiet, column, run) for _ in range(_RUNS.get(column, 1))]
        runs[column] = sorted(made, key=lambda each: each.rate)
    samples = {column: made[len(made) // 2] for column, made in runs.items()}
    text = [*prompt_ids, *alone.tokens]
    agrees = models.agrees(name, text, len(prompt_ids), sampling)
    lockstep = samples["k=4"].stats
    link_ms = lockstep.times.network / (lockstep.drafts_sent + 1)  # the prompt's is among them
    times = Times(
        draft_ms=models.step_ms(name, cost, sampling),
        verify_ms=lambda drafts: _pass_ms(info.pass_ms, drafts),
        rtt_ms=rtt,
        overhead_ms=max(0.0, link_ms - rtt),
    )
    reference = best(Trace(agrees), times)
    rates = {column: sample.rate for column, sample in samples.items()}
    rates |= {"reference": reference.tokens_per_second, "U": upper_bound(Trace(agrees), times)}
    return {
        "drafter": name,
        "agreement": sum(agrees[1:]) / (len(agrees) - 1),
        "target_rate": alone.rate,
        "target_ttft_ms": alone.ttft_ms,
        "ratios": {column: rate / alone.rate for column, rate in rates.items()},
        "ttft_ms": {column: sample.ttft_ms for column, sample in samples.items()},
        "lost": {"target": alone.lost, **{column: sample.lost for column, sample in samples.items()}},
        "same_text": {column: all(sample.tokens == alone.tokens for sample in made) for column, made in runs.items()},
        "spread": {column: [sample.rate / alone.rate for sample in made] for column, made in runs.items()},
        "policy": f"{reference.policy}, k={reference.k}",
        "measured": {"draft_ms": times.draft_ms, "verify_ms": info.pass_ms[:9], "link_ms": link_ms},
        "counts": {column: _summary(sample.stats) for column, sample in samples.items()},
    }


def _undisturbed(quiet: Watch, column: str, run: Callable[[], Sample]) -> Sample:
    """What was measured while the machine was itself, or the least disturbed of the tries."""
    tries: list[Sample] = []
    while len(tries) < _TRIES:
        quiet.start()
        tries.append(replace(run(), lost=quiet.share))
        if tries[-1].lost <= _LOST.get(column, sweep_report.VOID):
            break
    return min(tries, key=lambda sample: sample.lost)


def _summary(stats: Stats) -> dict[str, int]:
    names = (
        "rounds",
        "drafts_sent",
        "drafted",
        "accepted",
        "mispredicted",
        "next_draft_ready",
        "bytes_sent",
        "bytes_received",
    )
    return {name: getattr(stats, name) for name in names} | {"own": stats.sources[TokenSource.TARGET_DECODED]}


def _pass_ms(measured: list[float], drafts: int) -> float:
    """What the verifier says a pass takes; a straight line beyond what it says."""
    if drafts < len(measured):
        return measured[drafts]
    slope = (measured[-1] - measured[0]) / (len(measured) - 1)
    return measured[-1] + slope * (drafts - len(measured) + 1)


def _request(number: int) -> dict[str, Any]:
    return {"max_tokens": TOKENS, "temperature": TEMPERATURE, "seed": number}


def _alone(client: VerifierClient, prompt_ids: list[int], number: int) -> Sample:
    began = time.perf_counter()
    moments: list[float] = []
    tokens: list[int] = []
    with released(client, TextSession(prompt_ids)) as text:
        for name, data in client.generate(text, _request(number)):
            if name == "tokens":
                moments.append(time.perf_counter())
                tokens += data["tokens"]
    return Sample(tokens, 1e3 * (moments[0] - began), moments[-1] - moments[0], Stats())


def _ours(
    client: VerifierClient,
    info: ModelInfo,
    drafter: Any,
    prompt_ids: list[int],
    number: int,
    mechanisms: Mechanisms,
    length: int | None,
) -> Sample:
    stats = Stats()
    with released(client, TextSession(prompt_ids)) as text:
        run = speculate(
            client,
            drafter,
            text,
            _request(number),
            info,
            stats,
            time.perf_counter,
            length=length,
            mechanisms=mechanisms,
        )
        moments = [time.perf_counter() for _ in run]
    return Sample(stats.token_ids, stats.ttft_ms, moments[-1] - moments[0], stats)


if __name__ == "__main__":
    main()
