"""Measures real models on this machine: specpair in each mode against llama-server alone and with its speculation.

Method. Nothing is paced. Target and draft model are files of yours, such as a model in bfloat16 and a small one of its
family in 4 bits (without them, the pair that ships, its target padded to 30 ms a step); each end has one thread, and
llama-server, whose models take turns, has one. The first prompt of each of `--kinds` (`lab.benchmarks.harness.kinds`;
for a model without a chat template only code) is written in every way by turns, in another order each time, and
`--repeats` times, each with another seed:

    llama-server alone
    n-gram types and draft-simple    every setting of `lab.benchmarks.real_pair.llama_server`, with the draft model's
                                     file, and with the copy in Q4_0 that our drafter makes of it
    ours, MODE                       one pair for all modes; its verifier has the draft model, too
    ours, auto, cold                 a pair that has just begun and remembers nothing

Tokens a second are those behind the first token, by the clock of the client that reads the text, on both sides. A
figure is the median over the repeats of the ratio to llama-server alone. llama-server has its own noise, so its texts
above temperature 0 are others. Servers and pairs are new in each repeat: some of them remember what they wrote.

What is written is kept in `.jsonl` beside the results, and not written again: a run can be stopped and resumed.
`--only` measures the ways whose names contain one of these words. The first
run compiles llama-server (`lab.benchmarks.real_pair.llama_server`).

    python -m lab.benchmarks.real_pair.compute --target TARGET.gguf --draft DRAFT.gguf [--repeats 5]
"""

import argparse
import itertools
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from math import exp, log
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from backends.llama_cpp.requantised import requantised
from backends.registry import load
from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.cli.program import SWITCH_INTERVAL
from gateway.openai_api.chat.template import Renderer
from lab.benchmarks.harness.kinds import CONTEXT, prompts_by_kind
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Way, Written, by_library
from lab.benchmarks.real_pair.llama_server import (
    ALONE,
    Setting,
    built,
    complete,
    llama_server,
    settings,
    shared_flags,
)
from lab.simulator.paced.padded_target import padded_target
from models import DEFAULT_DRAFT
from specpair.child_processes.serving import verifier
from specpair.engines.load_options import LoadOptions

KINDS = ("code", "editing", "extraction", "numbers", "question", "story")
# A text that is not counted: engines make ready what they need.
_FIRST_PROMPT, _FIRST_TOKENS = list(range(100, 116)), 8
Ways = dict[str, Way[list[int]]]  # by name
FLAGS = {
    "target": {"type": Path, "help": "GGUF file (default: the target that ships, padded)"},
    "draft": {"type": Path, "default": DEFAULT_DRAFT, "help": "GGUF file (default: the draft model that ships)"},
    "kinds": {"default": [*KINDS], "help": "of texts (default: %(default)s)"},
    "temperatures": [0.0, 0.8],
    "repeats": {"default": 5, "help": "(default: %(default)s)"},
    "tokens": {"default": 64, "help": "of each text (default: %(default)s)"},
    "lengths": {"default": [2, 3, 7, 8, 11, 16], "help": "most draft tokens of llama-server's draft model"},
    "only": {"default": [""], "help": "words in the names of the ways to measure (default: all)"},
}


def main() -> None:
    options = options_of(__doc__, FLAGS, "llama_cpp")
    options.target = options.target or padded_target(30.0)
    report = Report("real_pair.compute", options, f"real_pair_compute_{options.target.stem}+{options.draft.stem}")
    prompts = _prompts(options.target, options.kinds)
    for repeat, temperature in itertools.product(range(options.repeats), options.temperatures):
        done = {(text.place, text.way) for text in read(report)}
        places = [TextKey(kind, temperature, repeat) for kind in prompts]
        missing = {place: [way for way in _names(options) if (place, way) not in done] for place in places}
        if any(missing.values()):
            with _ways(options, temperature, {way for ways in missing.values() for way in ways}) as ways:
                for place, left in missing.items():
                    for way in random.Random(str(place)).sample(left, len(left)):
                        keep(report, place, way, ways[way](prompts[place.kind], place.repeat))
    report.line(f"# llama.cpp {built()[1]}", *tables(read(report)))
    report.save()


def _prompts(target: Path, kinds: Sequence[str]) -> dict[str, list[int]]:
    """The first prompt of each kind available for this model, as token ids."""
    options = LoadOptions(model=target, context_length=CONTEXT, slots=1, threads=1)
    found: dict[str, list[int]] = {}
    with closing(load("llama_cpp", options)) as backend, closing(Renderer()) as renderer:
        for kind, prompts in prompts_by_kind(backend, renderer, 1):
            if kind in kinds:
                found[kind] = prompts[0]
            if len(found) == len(kinds):  # later kinds have the target write answers
                break
    if not found:
        sys.exit(f"--kinds: there are no prompts of these kinds for this model: {', '.join(kinds)}")
    return found


def _ours(mode: Mode) -> str:
    return f"{OURS}{mode}"


def _settings(options: argparse.Namespace) -> list[Setting]:
    return settings({FILE: options.draft, COPY: requantised(options.draft)}, options.lengths)


def _names(options: argparse.Namespace) -> list[str]:
    """The names of the measured ways."""
    names = [*(each.name for each in _settings(options)), *map(_ours, Mode), COLD]
    return [name for name in names if any(word in name for word in options.only)]


@contextmanager
def _ways(options: argparse.Namespace, temperature: float, names: set[str]) -> Iterator[Ways]:
    """Start these ways to write a text while the block lasts. Each has written a short warm-up text."""
    program, shared = built()[0], shared_flags(options.target, CONTEXT, 1)
    draft = DraftModel(options.draft, engine=LoadOptions(context_length=CONTEXT, threads=1))
    drafts = {"draft_model": options.draft, "draft_threads": 1, "draft_slots": 2}

    def write(pair: Pair, mode: Mode, tokens: int, temperature: float, prompt: list[int], seed: int) -> Written:
        chosen = Options(max_tokens=tokens, temperature=temperature, seed=seed, mode=mode)
        return by_library(pair, prompt, chosen.cold())

    def write_cold(url: str, *how: object) -> Written:
        with Pair(url, draft) as pair:
            return write(pair, Mode.AUTO, *how)  # type: ignore[arg-type]

    with ExitStack() as stack:
        made: dict[str, Callable[..., Written]] = {}
        for each in _settings(options):
            if each.name in names:
                server = llama_server(program, [*shared, *each.flags], speculates=bool(each.flags))
                made[each.name] = partial(complete, stack.enter_context(server))
        if any(name.startswith(OURS) for name in names):
            sys.setswitchinterval(SWITCH_INTERVAL)  # as the drafter's program does
            ours = stack.enter_context(verifier(model=options.target, threads=1, slots=2, context=CONTEXT, **drafts))
            pair = stack.enter_context(Pair(ours.url, draft))
            made |= {_ours(mode): partial(write, pair, mode) for mode in Mode if _ours(mode) in names}
            if COLD in names:
                made[COLD] = partial(write_cold, ours.url)
        for way in made.values():
            way(_FIRST_TOKENS, temperature, _FIRST_PROMPT, 0)
        yield {name: partial(way, options.tokens, temperature) for name, way in made.items()}


OURS = "ours, "
TARGET, COLD = f"{OURS}target", f"{OURS}auto, cold"
# llama-server's draft models: the file that is given, and the copy that our drafter makes of it.
FILE, COPY = "draft", "draft in Q4_0"
Ratios = Mapping[str, float]  # tokens a second over those of llama-server alone, by kind


class TextKey(NamedTuple):
    """The key by which texts of all ways are compared."""

    kind: str
    temperature: float
    repeat: int


class Text(NamedTuple):
    """The record of a text. Times in seconds."""

    place: TextKey
    way: str
    tokens: int
    seconds: float  # from the first token to the last
    first: float  # until the first token
    rounds: int  # of ours
    drafted: int
    accepted: int
    passes: float  # those of the target, of ours

    @property
    def rate(self) -> float:
        """Tokens a second behind the first."""
        return (self.tokens - 1) / self.seconds


def keep(report: Report, place: TextKey, way: str, text: Written) -> None:
    """Keep a text, and print its rate."""
    stats = text.stats
    counts = stats.rounds, stats.drafted, stats.accepted, round(stats.times.verify, 4)
    kept = Text(place, way, len(text.tokens), round(text.seconds, 4), round(text.ttft_ms / 1e3, 4), *counts)
    report.keep(kept._asdict() | {"place": place._asdict()})
    accepted = f"  {kept.accepted} of {kept.drafted} accepted" if kept.drafted else ""
    print(f"{place.kind:12}{place.temperature:4g}  {way:50}{kept.rate:7.2f} tokens/s{accepted}", flush=True)


def read(report: Report) -> list[Text]:
    """The records that `keep` stored, also in earlier runs."""
    return [Text(**told | {"place": TextKey(**told["place"])}) for told in report.kept()]


def tables(texts: Iterable[Text]) -> list[str]:
    """For each temperature, a line for each way, and the conclusions. A way that lacks a kind is left out, and none
    that lacks repeats counts as llama-server's best, with the draft model's file, and with its copy, too.
    """
    by_temperature: dict[float, list[Text]] = defaultdict(list)
    for text in texts:
        by_temperature[text.place.temperature].append(text)
    return [line for each, some in sorted(by_temperature.items()) for line in ("", *_table(each, some))]


def ratios(texts: Sequence[Text]) -> dict[str, Ratios]:
    """By way and kind, the median over the repeats of the ratio to llama-server alone."""
    alone = {text.place: text.rate for text in texts if text.way == ALONE}
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for text in texts:
        if text.place in alone:
            found[text.way][text.place.kind].append(text.rate / alone[text.place])
    medians = {way: {kind: median(each) for kind, each in kinds.items()} for way, kinds in found.items()}
    kinds = medians.get(ALONE, {})
    return {way: {kind: each[kind] for kind in kinds} for way, each in medians.items() if each.keys() == kinds.keys()}


def mean(each: Ratios) -> float:
    """The geometric mean over kinds."""
    return exp(fmean(map(log, each.values())))


def _table(temperature: float, texts: Sequence[Text]) -> list[str]:
    found = ratios(texts)
    repeats = {way: len({text.place.repeat for text in texts if text.way == way}) for way in found}
    most = max(repeats.values(), default=0)
    lines = [f"temperature {temperature:g}, times llama-server alone, medians of {most}"]
    if ALONE not in found:
        return [*lines, "  llama-server alone was not measured"]
    kinds = list(found[ALONE])
    ways = sorted(found, key=lambda way: (way.startswith(OURS), way != ALONE, way))
    width = max(map(len, ways))
    lines.append(f"  {'':{width}}" + "".join(f"{kind:>12}" for kind in kinds) + f"{'all':>8}")
    lines += [
        f"  {way:{width}}"
        + "".join(f"{found[way][kind]:12.2f}" for kind in kinds)
        + f"{mean(found[way]):8.2f}"
        + (f"  of {repeats[way]}" if repeats[way] < most else "")
        for way in ways
    ]
    whole = [way for way in ways if repeats[way] == most]
    theirs = [way for way in whole if not way.startswith(OURS)]
    modes = [way for way in whole if way.startswith(OURS) and way != COLD]
    if modes:
        with_file = [way for way in theirs if not way.endswith(COPY)]
        mine, *best = (max(some, key=lambda way: mean(found[way])) for some in (modes, with_file, theirs))
        lines += [f"  {_over(mine, each, found)}" for each in dict.fromkeys(best)]
        if TARGET in found:
            lines += [f"  {_over(way, TARGET, found)}" for way in ways if way.startswith(OURS) and way != TARGET]
        fixed = [way for way in modes if "auto" not in way]
        if COLD in found and fixed:
            lines.append(f"  {_over(COLD, max(fixed, key=lambda way: mean(found[way])), found)}")
    return lines


def _over(one: str, other: str, found: Mapping[str, Ratios]) -> str:
    over = {kind: found[one][kind] / found[other][kind] for kind in found[one]}
    worst = min(over, key=over.__getitem__)
    return f"{one} over {other}: {mean(over):.2f}, least {over[worst]:.2f} ({worst})"


if __name__ == "__main__":
    main()
