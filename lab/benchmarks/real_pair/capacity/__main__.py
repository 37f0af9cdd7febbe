"""How many drafters one verifier carries with texts of a real pair, against server-side drafting and the target alone.

Method. As `lab.benchmarks.real_pair`: recorded texts are written again in virtual time, by the scheduler and the
controller that ship; passes take as long as the stated models would on the stated devices, all sequences of a pass
together. Here many clients have texts written at once, each one text after another, over the same link; `crowd.py` says
how the steady state is measured, which texts are the same for each form. Prompts are read in the same passes. What the
verifier's program takes is left out; the requests that it answers a second are printed. Forms:

    alone     plain clients: the server decodes
    field     server-side drafting as the best of the field has it, the draft model on the target's device: one draft
              step for all texts at a time, then the target's pass (`field.py`); the draft length, 0 included, and the
              prompt tokens of a pass that are best with hindsight
    free      the same where draft passes take no time: what chains could bring at best if another machine drafted them
              and there were no link
    chains    each client has a drafter over the link, where the verifier takes no trees
    trees     the same, where it takes trees
    fused     server-side drafting as it ships, the draft model on the target's device, whose passes take turns

Printed, for each number of clients: tokens a second of all together, of each on average, and the 5th percentile of
texts behind their first token. Then, for the tokens a second that each number of clients gets with ours: how many
clients server-side drafting gives as much, on a line between the measured numbers, and how many times as many ours are.

    python -m lab.benchmarks.real_pair.capacity --draft DRAFT.gguf [--target "70B on 2 H100"] [--drafter M4] [--texts 2]
"""

import argparse
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise, product
from math import exp, log
from pathlib import Path

from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.real_pair.__main__ import agreements, chosen
from lab.benchmarks.real_pair.capacity import clients, field
from lab.benchmarks.real_pair.capacity.crowd import Crowd, Outcome, Piece
from lab.benchmarks.real_pair.draft_choices import DraftModel
from lab.benchmarks.real_pair.machines import DRAFTERS, TARGETS, Setting
from lab.simulator.costs.linear import LinearCost

FORMS = ("alone", "field", "free", "chains", "trees", "fused")
_LONGEST = {"field": 7, "free": 16}  # draft tokens of server-side drafting, at most
_CHUNKS = 512, 2048  # prompt tokens of a pass with server-side drafting, at most
_MORE = 2, 4  # times the most clients, for which server-side drafting is measured, too
FLAGS = {
    "draft": {"help": "GGUF file of the draft model", "required": True, "type": Path},
    "recording": {"default": "qwen2.5-coder-1.5b-instruct-bf16", "help": "(default: %(default)s)"},
    "texts": {"default": 1, "help": "of each kind, at most (default: %(default)s)"},
    "temperatures": [0.0, 0.8],
    "counts": {"default": [1, 4, 8, 16, 32, 64], "help": "of clients (default: %(default)s)"},
    "target": {"default": "8B on H100", "choices": [*TARGETS], "help": "(default: %(default)s)"},
    "drafter": {"default": "RTX 4070", "choices": [*DRAFTERS], "help": "(default: %(default)s)"},
    "forms": {"default": [*FORMS], "choices": FORMS, "help": "(default: all)"},
    "rtt-ms": {"default": 20.0, "help": "of the link (default: %(default)s)"},
    "overhead-ms": {"default": 3.0, "help": "of an exchange (default: %(default)s)"},
    "chunk": {"type": int, "help": "prompt tokens of a pass of ours, at most (default: as it ships)"},
}

Outcomes = Mapping[int, Outcome]  # by the number of clients


def main() -> None:
    options = options_of(__doc__, FLAGS)
    where = f"{options.target}_{options.drafter}_{options.rtt_ms:g}-ms".lower().replace(" ", "-")
    report = Report("real_pair.capacity", options, f"real_pair_capacity_{where}")
    with closing(DraftModel(options.draft, options.recording, asks_all=False)) as model:
        by_temperature = {each: _pieces(model, options, each) for each in options.temperatures}
        ends = model.ends
    link = options.rtt_ms / 1e3, options.overhead_ms / 1e3
    setting = Setting(TARGETS[options.target], DRAFTERS[options.drafter], *link)
    for temperature, pieces in by_temperature.items():
        numberings = clients.numberings_of(pieces, ends)
        found: dict[str, Outcomes] = {}
        for form in options.forms:
            measure = partial(_measure, form, pieces, setting, numberings, options.chunk)
            more = [times * max(options.counts) for times in _MORE if form == "field"]
            found[form] = {count: measure(count) for count in [*options.counts, *more]}
        title = f"{options.target}, drafter {options.drafter}, {options.rtt_ms:g} ms, temperature {temperature:g}"
        report.line("", title, *_table(found), *_carried(found))
    report.save()


def _pieces(model: DraftModel, options: argparse.Namespace, temperature: float) -> list[Piece]:
    """The texts of a temperature, in one order for all."""
    pieces = []
    for number, text in chosen(options.recording, options.texts):
        if text.sampling.temperature == temperature:
            with model.text(number, text) as choices:
                pieces.append(Piece(text, choices, agreements(text, choices)))
    random.Random(1).shuffle(pieces)
    return pieces


def _measure(
    form: str,
    pieces: Sequence[Piece],
    setting: Setting,
    numberings: clients.Numberings,
    chunk: int | None,
    count: int,
) -> Outcome:
    """One form with `count` clients."""
    writes: list[Callable[[Crowd], None]]
    if form in _LONGEST:
        costs = setting.target.cost, setting.same_box if form == "field" else LinearCost(0.0, 0.0, 0.0)
        tried = product(range(_LONGEST[form] + 1), _CHUNKS)
        writes = [
            partial(field.write, target=costs[0], draft=costs[1], rtt=setting.rtt, drafts=drafts, chunk=most)
            for drafts, most in tried
        ]
    else:
        writes = [partial(clients.FORMS[form], setting=setting, numberings=numberings, chunk=chunk)]
    outcomes = []
    for write in writes:
        crowd = Crowd(pieces, count)
        write(crowd)
        outcomes.append(crowd.outcome)
    return max(outcomes)


def _table(found: Mapping[str, Outcomes]) -> Iterable[str]:
    """A line for each number of clients, and the passes with the most."""
    yield f"{'clients':>7}" + "".join(f"{form:>10}{'each':>7}{'p5':>7}" for form in found)
    counts = sorted({count for each in found.values() for count in each})
    for count in counts:
        rows = (each.get(count) for each in found.values())
        yield f"{count:7}" + "".join(
            f"{row.rate:10.0f}{row.rate / count:7.1f}{row.slow:7.1f}" if row else f"{'':24}" for row in rows
        )
    for form, each in found.items():
        most, last = max(each.items())
        told = f"{last.passes:.0f} passes a second of {last.width:.0f} tokens, {last.requests:.0f} requests a second"
        yield f"{form} with {most}: {told}"


def _carried(found: Mapping[str, Outcomes]) -> Iterable[str]:
    """Of each number of clients, how many the field's server-side drafting carries at their rate."""
    server = found.get("field")
    for form in ("chains", "trees", "fused") if server else ():
        for count, outcome in found.get(form, {}).items():
            rate = outcome.rate / count
            told = _told(carried(server or {}, rate), count)
            yield f"at {rate:.1f} tokens/s each, {form} carry {count}, the field's server-side drafting {told}"


def carried(outcomes: Outcomes, rate: float) -> float | None:
    """The greatest number of clients that get `rate` tokens a second each, on a line (of logarithms) between those that
    were measured. 0.0: not even the least; None: all do."""
    points = [(log(count), log(each.rate / count)) for count, each in sorted(outcomes.items())]
    wanted = log(rate)
    if points[-1][1] >= wanted:
        return None
    for (low, above), (high, below) in [*pairwise(points)][::-1]:
        if above >= wanted:
            return exp(low + (high - low) * (above - wanted) / (above - below))
    return 0.0


def _told(most: float | None, count: int) -> str:
    return "more than were measured" if most is None else f"{most:.1f}: {count / most:.2f} times" if most else "none"


if __name__ == "__main__":
    main()
