"""Tokens per second by round-trip time, against the target alone, fixed lockstep, a reference and a bound.

Method. A verifier process serves the default target stretched to 80 or 25 ms a step (`lab.simulator.paced`); this
process drafts with a model stretched to 8 or 4 ms a token; a relay adds the round-trip time. Tokens and agreement are
those of the real models. A text of 257 tokens at temperature 1 behind a held-out prompt. Rates count from the first
token known here to the last. Columns, all but the first as multiples of what the target streams:

    target       the target alone (`/generate`), streamed over the same link
    k=4          four drafts, send, wait: what public REST pairs do
    ours         the default of `python -m drafter_client`: the middle of three runs
    -overlap … -adaptive   ours with one mechanism off
    reference    the best static policy in a replay of this text's agreement with the times measured in this cell: a
                 step of the drafter, the verifier's passes, and what an exchange took beyond them in the run of `k=4`
                 (`reference.py`: chosen with hindsight, and its decisions take no time)

A run is repeated, at most twice, where the machine lost more than 10 % of the time (2 % in the first two columns); the
report leaves out what is over 10 % all the same. A line on standard error says when a cell begins. Each is written to
`latency_sweep.jsonl` as it ends and not measured again, so that a sweep can be resumed; `.txt` is made of that file.

    python -m lab.benchmarks.latency_sweep [--targets 80 25] [--drafts 8 4] [--rtt 0.2 5 20 50 100]
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from gguf import quants

from drafter_client.http.client import VerifierClient
from lab.benchmarks.harness.machine import watch
from lab.benchmarks.harness.models import BRANCHES, CONTEXT, DRAFTERS, agreement, held_out_prompts, load_drafter
from lab.benchmarks.harness.relay import relay
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, alone, connected, paired
from lab.benchmarks.latency_sweep import summary
from lab.benchmarks.latency_sweep.reference import MeasuredLatencies, Trace, best, pass_times
from lab.simulator.costs.cost import LinearCost
from lab.simulator.paced import engine as paced
from lab.simulator.paced.engine import Paced
from lab.simulator.paced.padded_target import CACHE
from models import DEFAULT_TARGET
from models.gguf_file import Tensor, read_gguf, write_gguf
from specpair.child_processes.serving import verifier
from specpair.drafters.base import Drafter, Expansion
from specpair.drafters.draft_model import ModelDrafter
from specpair.engines.backend import Backend, Entry
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling

# How often each drafter agrees with the target is measured, not assumed. The pair that ships has a small draft model
# (near 0.6 on sampled text) and the target's own Q4_0 twin (near 0.9). On no text the small one comes near 0.8 without
# looping, so the one between is the target itself with noise on its weights.
NAMES = ("twin", "noisy", "small", "junk")
_NOISE = 0.16  # of a weight matrix's standard deviation


def noisy_target() -> Path:
    """The default target with seeded Gaussian noise on its matrices; cached."""
    CACHE.mkdir(exist_ok=True)
    kept = CACHE / f"noisy-{_NOISE:g}.gguf"
    if not kept.exists():
        model = read_gguf(DEFAULT_TARGET)
        rng = np.random.default_rng(0)
        write_gguf(replace(model, tensors=[_noisy(tensor, rng) for tensor in model.tensors]), kept)
    return kept


def _noisy(tensor: Tensor, rng: np.random.Generator) -> Tensor:
    if tensor.data.ndim < 2:
        return tensor
    values = np.asarray(quants.dequantize(tensor.data, tensor.kind), dtype=np.float32)
    values = values + rng.normal(0.0, _NOISE * values.std(), values.shape).astype(np.float32)
    return Tensor(tensor.name, quants.quantize(values, tensor.kind), tensor.kind)


class Junk:
    """Draft tokens that are hardly ever accepted, at a model's cost."""

    width = BRANCHES

    def __init__(self, cost: LinearCost) -> None:
        self._cost = cost

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        time.sleep(self._cost.of([Entry(slot, 0, [0], 0) for slot in range(len(tails))]))
        proposals = []
        for tail in tails:
            last, place = [*text[-1:], *tail][-1], len(text) + len(tail)
            proposals.append(Proposal((31 * last + place) % 4096, 0.3, (31 * last + place + 1) % 4096))
        return Expansion(proposals, len(tails))


class Loaded:
    """The draft models by name, loaded once; their drafters cost the requested time."""

    def __init__(self, models: dict[str, Backend]) -> None:
        self._models = models

    def encode(self, prompt: str) -> list[int]:
        """The prompt's ids, the same for all draft models."""
        return next(iter(self._models.values())).vocabulary.encode(prompt)

    def drafter(self, name: str, cost: LinearCost, sampling: Sampling) -> Drafter:
        """A new drafter."""
        return Junk(cost) if name == "junk" else ModelDrafter(Paced(self._models[name], cost), sampling)

    def step_time(self, name: str, cost: LinearCost, sampling: Sampling) -> float:
        """Median seconds to draft one token further, in a text of some length."""
        drafter = self.drafter(name, cost, sampling)
        taken = []
        for length in range(128, 144):
            began = time.perf_counter()
            drafter.expand(list(range(2, 2 + length)), [[]], False)
            taken.append(time.perf_counter() - began)
        return median(taken[1:])  # the first one reads the text

    def agrees(self, name: str, text: Sequence[int], prompt_len: int, sampling: Sampling) -> list[bool]:
        """For each generated token of `text`, whether the drafter, given all tokens before, chooses it too."""
        drafter = Junk(LinearCost(0, 0, 0)) if name == "junk" else ModelDrafter(self._models[name], sampling)
        return agreement(drafter, text, prompt_len)


@contextmanager
def loaded(names: Sequence[str]) -> Iterator[Loaded]:
    """Draft models for as long as the block lasts."""
    with ExitStack() as stack:
        paths = {name: DRAFTERS.get(name) or noisy_target() for name in names if name != "junk"}
        yield Loaded({name: stack.enter_context(closing(load_drafter(path))) for name, path in paths.items()})


TARGETS = {80: paced.TARGET_80, 25: paced.TARGET_25}
DRAFTS = {8: paced.DRAFTER_8, 4: paced.DRAFTER_4}
KEYS = ("target_ms", "draft_ms", "rtt_ms", "drafter")  # what tells cells apart
SAMPLING = Sampling(0, 1.0)
REQUEST = {"max_tokens": 257, "temperature": SAMPLING.temperature, "seed": SAMPLING.seed}
ALL = Mechanisms()
_LOST = {"target": 0.02, "k=4": 0.02}  # share of a run's time that may be lost
_TRIES = 3  # runs at most until it is less
_RUNS = {"ours": 3}  # of which the middle one counts
COLUMNS: dict[str, dict[str, Any]] = {
    "k=4": {"mechanisms": LOCKSTEP, "draft_n": 4},
    "ours": {"mechanisms": ALL},
    "-overlap": {"mechanisms": LOCKSTEP},
    "-in flight": {"mechanisms": replace(ALL, in_flight=1)},
    "-corrections": {"mechanisms": replace(ALL, after_recovered=False)},
    "-self-continue": {"mechanisms": replace(ALL, self_continue=False)},
    "-adaptive": {"mechanisms": ALL, "draft_n": 4},
}
FLAGS = {
    "targets": {"default": list(TARGETS), "choices": TARGETS},
    "drafts": {"default": list(DRAFTS), "choices": DRAFTS},
    "rtt": [0.2, 5.0, 20.0, 50.0, 100.0],
    "drafters": {"default": list(NAMES), "choices": NAMES},
    "columns": {"default": list(COLUMNS), "choices": COLUMNS, "help": "`k=4` is always measured"},
}


def main() -> None:
    options = options_of(__doc__, FLAGS)
    report = Report("latency_sweep", options)
    measured = {tuple(cell[key] for key in KEYS) for cell in report.kept()}
    places = itertools.product(options.targets, options.drafts, options.rtt, options.drafters)
    left = [place for place in places if place not in measured]
    begun = itertools.count(1)
    with loaded(options.drafters) as models, watch() as lost:
        for target, rtt in itertools.product(options.targets, options.rtt):
            if todo := [place for place in left if (place[0], place[2]) == (target, rtt)]:
                settings = {"PACED_TARGET": TARGETS[target], "threads": 1, "context": CONTEXT}
                with (
                    verifier("lab.simulator.paced.engine:app", slots=4, **settings) as server,
                    relay(server.url, rtt) as url,
                    connected(url) as client,
                ):
                    _say(f"the target alone: {target} ms a step, {rtt:g} ms round trip")
                    runs = Runs(client, models, lost, options)
                    for place in todo:
                        drafts = f"{place[3]} drafter, {place[1]} ms a token"
                        _say(f"cell {next(begun)} of {len(left)}: {drafts}; {target} ms a step, {rtt:g} ms round trip")
                        cell = dict(zip(KEYS, place, strict=True)) | runs.cell(*place[1:])
                        report.keep(cell)
                        print(summary.cell_line(cell), flush=True)
    summary.write(report.kept(), report)


def _say(line: str) -> None:
    """Print the next measurement, between the runs."""
    print(line, file=sys.stderr, flush=True)


class Runs:
    """All runs at one target and round-trip time."""

    def __init__(
        self, client: VerifierClient, models: Loaded, lost: Callable[[], float], options: argparse.Namespace
    ) -> None:
        self._client, self._info, self._models = client, client.model(), models
        self._lost, self._options, self._round_trip = lost, options, client.ping()
        self._prompt = models.encode(held_out_prompts(1)[0])
        self._target = self._undisturbed("target", lambda: alone(client, self._prompt, REQUEST))

    def cell(self, draft_ms: int, rtt: float, name: str) -> dict[str, Any]:
        """All columns with one drafter."""
        cost, target = DRAFTS[draft_ms], self._target
        runs: dict[str, list[Written]] = {}
        for column in dict.fromkeys(["k=4", *self._options.columns]):

            def run(how: dict[str, Any] = COLUMNS[column]) -> Written:
                drafter = self._models.drafter(name, cost, SAMPLING)
                how = {"round_trip": self._round_trip, **how}
                return paired(self._client, drafter, self._prompt, REQUEST, self._info, **how)

            made = [self._undisturbed(column, run) for _ in range(_RUNS.get(column, 1))]
            runs[column] = sorted(made, key=lambda text: text.rate)
        middle = {column: made[len(made) // 2] for column, made in runs.items()}
        agrees = self._models.agrees(name, [*self._prompt, *target.tokens], len(self._prompt), SAMPLING)
        lockstep, delay = middle["k=4"].stats, rtt / 1e3
        link = lockstep.times.network / (lockstep.drafts_sent + 1)  # the prompt's is among them
        step, overhead = self._models.step_time(name, cost, SAMPLING), max(0.0, link - delay)
        times = MeasuredLatencies(step, pass_times(self._info.pass_times), delay, overhead)
        reference = best(Trace(agrees), times)
        rates = {column: text.rate for column, text in middle.items()}
        rates["reference"] = reference.tokens_per_second
        return {
            "agreement": sum(agrees[1:]) / (len(agrees) - 1),
            "target_rate": target.rate,
            "target_ttft_ms": target.ttft_ms,
            "ratios": {column: rate / target.rate for column, rate in rates.items()},
            "ttft_ms": {column: text.ttft_ms for column, text in middle.items()},
            "lost": {"target": target.lost, **{column: text.lost for column, text in middle.items()}},
            "same_text": {column: all(text.tokens == target.tokens for text in made) for column, made in runs.items()},
            "spread": {column: [text.rate / target.rate for text in made] for column, made in runs.items()},
            "policy": f"{reference.policy}, k={reference.k}",
            "measured": {"draft_ms": 1e3 * step, "verify_ms": self._info.pass_ms[:9], "link_ms": 1e3 * link},
        }

    def _undisturbed(self, column: str, run: Callable[[], Written]) -> Written:
        """The first run without a pause of the machine, or the least disturbed of the tries."""
        tries: list[Written] = []
        while len(tries) < _TRIES:
            began, before = time.perf_counter(), self._lost()
            text = run()
            tries.append(replace(text, lost=(self._lost() - before) / (time.perf_counter() - began)))
            if tries[-1].lost <= _LOST.get(column, summary.VOID):
                break
        return min(tries, key=lambda text: text.lost)


if __name__ == "__main__":
    main()
