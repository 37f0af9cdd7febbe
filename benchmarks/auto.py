"""What mode `auto` costs beside the best mode of the same run: 128 tokens, over three links.

Method. A verifier process serves the target; between it and the drafter lies the link relay (`benchmarks.relay`) with
one of `--rtt-ms`. Each of `--texts` prompts (out of files that no model here was trained on; one seed a prompt) is
written in every way, in another order for each: the target alone, fused, remote, `auto` cold (a new pair that remembers
nothing) and `auto` warm (a new pair that remembers one earlier text in `auto` over this link, and what the warm texts
before this one have added). A text's rate is its tokens after the first over the seconds from the first to the last:
the prompt is left out, what `auto` spends on changing modes is in. A way's rate is all its tokens over all its seconds,
the best mode the one with the greatest of the three rates; `auto` is told as a share of that. The middle half is over
texts: each text's rate beside the same text in that best mode. Engines are paced (`simulation.paced`): the target and
the draft models on both ends take `--step-ms` and `--draft-ms` a step, whatever else this machine does. With `--real`
they compute: a target padded until a step costs `--step-ms`, and draft models as they are, one thread each. With
`--dilate N` all times of the paced engines and the link are N times as long, so that what else the machine does counts
for an Nth.

    python -m benchmarks.auto [--rtt-ms 0.4 20 60] [--texts 6] [--here twin] [--there twin]
    python -m benchmarks.auto --real --step-ms 40
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from backends.base import Backend
from benchmarks.drafters import BRANCHES, load_drafter
from benchmarks.harness import Server, held_out_prompts, padded_target, serve, verifier
from benchmarks.relay import Link, relay
from benchmarks.report import Report, add_save
from drafter_client import Mode, Options, Pair
from drafter_client.cli.program import SWITCH_INTERVAL
from drafter_client.display.comparison_table import Way, shuffled
from drafter_client.http.client import VerifierClient
from drafter_client.metrics.quantile import quantile
from drafter_client.metrics.statistics import Stats
from drafter_client.sources import Drafting
from drafters.base import Drafter
from drafters.draft_model import model_drafter
from models import DEFAULT_DRAFT, DEFAULT_TARGET, DEFAULT_TWIN
from simulation.paced import Cost, Paced
from speculation.acceptance.strategies import Strategy
from speculation.sampling.sampling import Sampling

DRAFTERS = {"small": DEFAULT_DRAFT, "twin": DEFAULT_TWIN}
COLD, WARM = "auto cold", "auto warm"
MODES = (Mode.TARGET, Mode.FUSED, Mode.REMOTE)
WAYS = [*(Way(str(mode), mode) for mode in MODES), Way(COLD, Mode.AUTO), Way(WARM, Mode.AUTO)]
_WIDER = 0.02  # of a step: a further token in its pass (`simulation.paced` says where that is from)
_WIDER_DRAFT = 0.15


class Written(NamedTuple):
    """One text by one way."""

    tokens: int  # after the first
    seconds: float  # from the first to the last
    stats: Stats

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Loaded:
    """A source of drafts whose engine is there already, for pair after pair."""

    backend: Backend

    @contextmanager
    def open(self, client: VerifierClient, branches: int, texts: int) -> Iterator[Drafting]:
        info = client.model()
        client.check_vocabulary(self.backend.vocabulary, self.backend.model_name, info)

        def drafter(sampling: Sampling, strategy: Strategy) -> Drafter:
            for row in range(self.backend.rows):
                self.backend.release(row)
            return model_drafter(self.backend, sampling, strategy, info.vocabulary.size)

        yield Drafting(self.backend.model_name, info, self.backend.vocabulary, [drafter])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rtt-ms", type=float, nargs="+", default=[0.4, 20.0, 60.0])
    parser.add_argument("--texts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8], help="of the texts, in turn")
    parser.add_argument("--step-ms", type=float, default=30.0)
    parser.add_argument("--draft-ms", type=float, default=4.0, help="a step of the draft models, where paced")
    parser.add_argument("--here", choices=DRAFTERS, default="twin", help="drafts on the drafter's side")
    parser.add_argument("--there", choices=DRAFTERS, default="twin", help="drafts on the verifier's side")
    parser.add_argument("--real", action="store_true", help="compute instead of pacing")
    parser.add_argument("--dilate", type=float, default=1.0, metavar="N", help="paced: make all times N times as long")
    parser.add_argument("--explain", action="store_true", help="tell each text's stretches, and why")
    add_save(parser)
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL)
    options.step_ms, options.draft_ms = options.dilate * options.step_ms, options.dilate * options.draft_ms
    report = Report("auto", options, f"auto_{'real' if options.real else 'paced'}_{options.here}_{options.there}")
    backend = load_drafter(DRAFTERS[options.here])
    if not options.real:
        backend = Paced(backend, Cost(options.draft_ms, _WIDER_DRAFT * options.draft_ms, 0.0))
    with closing(backend), _server(options) as server:
        for rtt in options.rtt_ms:
            with relay(server.url, Link(rtt_ms=options.dilate * rtt)) as url, TemporaryDirectory() as folder:
                _tell(report, rtt, _write_all(url, Loaded(backend), Path(folder), options), options)
    report.save()


def _server(options: argparse.Namespace) -> AbstractContextManager[Server]:
    there = DRAFTERS[options.there]
    if options.real:
        target = padded_target(options.step_ms)
        return verifier(model=target, threads=1, rows=4, context=1024, draft_model=there, draft_threads=1)
    settings = {"MODEL": DEFAULT_TARGET, "THREADS": 1, "ROWS": 4, "CONTEXT": 1024}
    settings |= {"DRAFT_MODEL": there, "DRAFT_THREADS": 1, "DRAFT_ROWS": 2}
    environment = {f"VERIFIER_{name}": str(value) for name, value in settings.items()}
    environment["PACED_TARGET"] = str(Cost(options.step_ms, _WIDER * options.step_ms, 0.0))
    environment["PACED_DRAFT"] = str(Cost(options.draft_ms, _WIDER_DRAFT * options.draft_ms, 0.0))
    return serve("simulation.paced:app", environment)


def _write_all(url: str, draft: Loaded, folder: Path, options: argparse.Namespace) -> dict[str, list[Written]]:
    """Every prompt in every way."""
    first, *prompts = held_out_prompts(options.texts + 1)
    remembered = folder / "warm.json"
    for mode in (*MODES, Mode.AUTO):  # the first of each is not counted: engines make ready what they need
        _write(url, draft, remembered, mode, first, 999, options)
    written: dict[str, list[Written]] = {way.name: [] for way in WAYS}
    for number, prompt in enumerate(prompts):
        for way in shuffled(WAYS, 0, number):
            memory = folder / f"cold-{number}.json" if way.name == COLD else remembered
            written[way.name].append(_write(url, draft, memory, way.mode, prompt, number, options))
    return written


def _write(
    url: str, draft: Loaded, memory: Path, mode: Mode, prompt: str, seed: int, options: argparse.Namespace
) -> Written:
    temperature = options.temperatures[seed % len(options.temperatures)]
    chosen = Options(max_tokens=options.tokens, temperature=temperature, seed=seed, mode=mode)
    with Pair(url, draft, branches=BRANCHES, memory=memory) as pair:
        stats = pair.generate(prompt, chosen).read().stats
    return Written(stats.generated_tokens - 1, (stats.total_ms - stats.ttft_ms) / 1e3, stats)


def _tell(report: Report, rtt: float, written: dict[str, list[Written]], options: argparse.Namespace) -> None:
    rates = {name: sum(one.tokens for one in each) / sum(one.seconds for one in each) for name, each in written.items()}
    best = max(MODES, key=lambda mode: rates[mode])
    report.line(f"\nround trip {rtt:g} ms, {options.texts} texts of {options.tokens} tokens; best mode: {best}")
    report.line("  way          tokens/s  x target  of the best  middle half")
    for name, rate in rates.items():
        shares = [one.rate / other.rate for one, other in zip(written[name], written[best], strict=True)]
        middle = f"{quantile(shares, 0.25):.2f} to {quantile(shares, 0.75):.2f}"
        report.line(f"  {name:<12}{rate:9.1f}{rate / rates[Mode.TARGET]:10.2f}{rate / rates[best]:13.3f}  {middle:>12}")
    if options.explain:
        for name in (COLD, WARM):
            for one in written[name]:
                turns = ", ".join(f"{turn.mode} {turn.tokens}" for turn in one.stats.turns)
                report.line(f"    {name}: {one.rate:.1f} ({turns}) {one.stats.why}")


if __name__ == "__main__":
    main()
