"""What mode `auto` costs beside the best mode of the same run, over three links.

Method. A verifier process and a relay with one of `--rtt-ms`. Each of `--texts` held-out prompts (one seed each) is
written in every way, in another order for each: the target alone, fused, remote, `auto` cold (a new pair that remembers
nothing) and `auto` warm (a new pair that remembers one earlier text in `auto` over this link, and the warm texts
before). Rates leave the prompt out; what `auto` spends on changing modes is in. `auto` is compared with the mode of the
greatest rate; the middle half is over texts. Engines are paced (`lab.simulator.paced`): target and draft models take
`--step-ms` and `--draft-ms` a step. With `--real` they compute, one thread each: a target padded to `--step-ms`, draft
models as they are.

    python -m lab.benchmarks.auto [--rtt-ms 0.4 20 60] [--texts 6] [--here twin] [--there twin]
    python -m lab.benchmarks.auto --real --step-ms 40
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from drafter_client import Mode, Options, Pair
from drafter_client.cli.program import SWITCH_INTERVAL
from drafter_client.draft_sources import OpenedSource
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import check_vocabulary
from lab.benchmarks.harness.models import CONTEXT, DRAFTERS, held_out_prompts, load_drafter
from lab.benchmarks.harness.relay import relay
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, by_library, by_turns, rate
from lab.simulator.costs.linear import LinearCost
from lab.simulator.paced.engine import Paced
from lab.simulator.paced.padded_target import padded_target
from models import DEFAULT_TARGET
from specpair.child_processes.serving import Server, verifier
from specpair.drafters.base import Drafter
from specpair.drafters.draft_model import model_drafter
from specpair.engines.backend import Backend
from specpair.protocol.service_responses import ModelInfo
from specpair.quantile import quantile
from specpair.speculation.text_options import TextSpec

COLD, WARM = "auto cold", "auto warm"
MODES = (Mode.TARGET, Mode.FUSED, Mode.REMOTE)
WAYS = {**{str(mode): mode for mode in MODES}, COLD: Mode.AUTO, WARM: Mode.AUTO}
_WIDER, _WIDER_DRAFT = 0.02, 0.15  # of a step: a further token in its pass (`lab.simulator.paced` names the sources)
FLAGS = {
    **{"rtt-ms": [0.4, 20.0, 60.0], "texts": 6, "tokens": 128},
    "temperatures": {"default": [0.0, 0.8], "help": "of the texts, in turn"},
    "step-ms": 30.0,
    "draft-ms": {"default": 4.0, "help": "a step of the draft models, where paced"},
    "here": {"choices": DRAFTERS, "default": "twin", "help": "drafts on the drafter's side"},
    "there": {"choices": DRAFTERS, "default": "twin", "help": "drafts on the verifier's side"},
    "real": {"default": False, "help": "compute instead of pacing"},
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A source of drafts whose engine is loaded already, for pair after pair."""

    backend: Backend

    @contextmanager
    def open(self, client: VerifierClient, branches: int, texts: int) -> Iterator[OpenedSource]:
        yield self._drafting(client, client.model())

    def _drafting(self, client: VerifierClient, info: ModelInfo) -> OpenedSource:
        check_vocabulary(client, self.backend.vocabulary, self.backend.model_name, info)

        def drafter(spec: TextSpec, prompt_ids: Sequence[int]) -> Drafter:
            for slot in range(self.backend.slots):
                self.backend.release(slot)
            return model_drafter(self.backend, spec, info.vocabulary.size, len(prompt_ids))

        return OpenedSource(self.backend.model_name, info, self.backend.vocabulary, [drafter], self._drafting)


def main() -> None:
    options = options_of(__doc__, FLAGS)
    sys.setswitchinterval(SWITCH_INTERVAL)
    report = Report("auto", options, f"auto_{'real' if options.real else 'paced'}_{options.here}_{options.there}")
    backend = load_drafter(DRAFTERS[options.here])
    if not options.real:
        backend = Paced(backend, _draft_cost(options))
    with closing(backend), _server(options) as server:
        for rtt in options.rtt_ms:
            with relay(server.url, rtt) as url, TemporaryDirectory() as folder:
                tell(report, rtt, _write_all(url, Loaded(backend), Path(folder), options), options)
    report.save()


def _draft_cost(options: argparse.Namespace) -> LinearCost:
    return LinearCost(options.draft_ms, _WIDER_DRAFT * options.draft_ms, 0.0)


def _server(options: argparse.Namespace) -> AbstractContextManager[Server]:
    drafts = {"draft_model": DRAFTERS[options.there], "draft_threads": 1}
    settings: dict[str, Any] = {"threads": 1, "slots": 4, "context": CONTEXT, **drafts}
    if options.real:
        return verifier(model=padded_target(options.step_ms), **settings)
    target = LinearCost(options.step_ms, _WIDER * options.step_ms, 0.0)
    paced = {"PACED_TARGET": target, "PACED_DRAFT": _draft_cost(options)}
    return verifier("lab.simulator.paced.engine:app", model=DEFAULT_TARGET, draft_slots=2, **settings, **paced)


def _write_all(url: str, draft: Loaded, folder: Path, options: argparse.Namespace) -> dict[str, list[Written]]:
    """Every prompt in every way."""

    def write(way: str, prompt: str, seed: int) -> Written:
        temperature = options.temperatures[seed % len(options.temperatures)]
        chosen = Options(max_tokens=options.tokens, temperature=temperature, seed=seed, mode=WAYS[way])
        with Pair(url, draft, memory=folder / (f"cold-{seed}.json" if way == COLD else "warm.json")) as pair:
            return by_library(pair, prompt, chosen)

    first, *prompts = held_out_prompts(options.texts + 1)
    for way in (*MODES, WARM):  # the first of each is not counted: engines make ready what they need
        write(way, first, 999)
    return by_turns({way: partial(write, way) for way in WAYS}, prompts)


def tell(report: Report, rtt: float, written: dict[str, list[Written]], options: argparse.Namespace) -> None:
    """Report every way at one round-trip time."""
    rates = {name: rate(texts) for name, texts in written.items()}
    best = max(MODES, key=lambda mode: rates[mode])
    report.line(f"\nround trip {rtt:g} ms, {options.texts} texts of {options.tokens} tokens; best mode: {best}")
    report.line("  way          tokens/s  x target  of the best  middle half")
    for name, each in rates.items():
        shares = [one.rate / other.rate for one, other in zip(written[name], written[best], strict=True)]
        middle = f"{quantile(shares, 0.25):.2f} to {quantile(shares, 0.75):.2f}"
        report.line(f"  {name:<12}{each:9.1f}{each / rates[Mode.TARGET]:10.2f}{each / rates[best]:13.3f}  {middle:>12}")


if __name__ == "__main__":
    main()
