"""`drafter compare`: writes every prompt in every way by turns, and shows tables and a conclusion.

Machines and networks drift. So each text is compared with that of the target alone on the same prompt in the same run.
One way counts as faster than another by the share of texts that it generated faster.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from drafter_client.cli.prompts import FilePrompt, parse_prompts
from drafter_client.cli.steps import INTERRUPTED, check_system, drawing_options, pair_of, prompt_ids, read_prompts
from drafter_client.errors import BadPromptFile
from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from drafter_client.statistics import Stats
from specpair.numbers import counted, quantile
from specpair.speculation.sampling.gumbel import SEED_LIMIT

TARGET = "target"
AUTO = "auto"  # the way in mode `auto`, which chooses among the others: it is not ranked with them
ALL = "all"
_CLOSE = 0.7  # the share of texts that a way must generate faster than another to count as faster
_WARM_UP = 8  # tokens that each way generates before the measurement
_COLUMNS = ("way", "tokens/s", "x target", "middle half", "TTFT", "accepted", "same text")
_FEW, _WIDE = _COLUMNS[:3], 76  # on a terminal of fewer than 76 columns


class Way(NamedTuple):
    """A way to generate a text. `draft_n`: draft tokens a round; None: chosen automatically."""

    name: str
    mode: Mode
    draft_n: int | None = None


class WayResult(NamedTuple):
    """One text: the result of one way for one prompt in one run. `run` and `prompt` are numbers from 0."""

    way: str
    kind: str
    run: int
    prompt: int
    token_ids: tuple[int, ...]
    tokens_per_second: float
    ttft_ms: float
    drafted: int
    accepted: int


_Texts = dict[tuple[str, int, int], WayResult]  # of one way, by kind, prompt and run


@dataclass(frozen=True, slots=True)
class ComparedWay:
    """The results of one way for one kind of prompts. Rates are in tokens per second."""

    way: str
    texts: int
    rate: float  # median
    low: float  # lower quartile of the rates
    high: float  # upper quartile of the rates
    ratio: float  # rate of a text divided by that of the target alone, median over texts
    ttft_ms: float  # median
    acceptance: float | None  # acceptance rate, 0 to 1; None: no draft token was judged
    same: int  # texts equal to the target's, token by token


@dataclass(frozen=True, slots=True)
class WayComparison:
    """The results of all ways, in the order of the texts, for one kind of prompts or for all."""

    kind: str
    rows: list[ComparedWay]
    best: str  # the way with the highest ratio, `auto` left out
    second: str | None  # the way with the next highest ratio, if any
    won: int  # texts that `best` generated faster than `second` did
    texts: int  # of each way

    @property
    def clear(self) -> bool:
        """Whether `best` beat `second` in enough texts (`_CLOSE`); else another run might rank them the other way."""
        return self.second is None or self.won >= _CLOSE * self.texts


def run_compare(options: argparse.Namespace) -> int:
    """Generate every text in every way, then show the tables. Returns the exit status."""
    chosen = replace(drawing_options(options), lookup=options.lookup, lockstep=options.lockstep).settled()
    check_system(options)
    kinds = _kinds(options, chosen)
    notes = Console(stderr=True, markup=False, highlight=False)
    with pair_of(options) as pair:
        most = pair.target.max_drafts
        if max(options.lengths) > most:
            notes.print(f"drafter: --lengths: this verifier judges {most} draft tokens at once, more are left out")
        found = ways(pair.modes, [length for length in options.lengths if length <= most])
        texts, last, interrupted = list[WayResult](), Stats(), False
        try:
            for each, of_auto in _measure(pair, found, kinds, options.runs, notes):
                texts, last = [*texts, *each], of_auto
        except KeyboardInterrupt:
            if not texts:
                raise
            interrupted = True
            notes.print("drafter: interrupted: the tables have the texts that all ways have written", soft_wrap=True)
        order = [*(way.name for way in found), AUTO]
        texts.sort(key=lambda text: order.index(text.way))
        link, name, fastest = pair.round_trip_ms, pair.target.name, pair.fastest
    of_kinds = {kind: [text for text in texts if text.kind == kind] for kind in kinds}
    tables = [table(kind, several) for kind, several in of_kinds.items() if several]
    if len(tables) > 1:
        tables.append(table(ALL, texts))
    if options.json:
        report = {
            "model": name,
            "round_trip_ms": round(link, 3),
            "tables": [asdict(each) | {"clear": each.clear} for each in tables],
            "auto": {"took": fastest, "why": last.why},
            "texts": [text._asdict() for text in texts],
            "interrupted": interrupted,
        }
        print(json.dumps(report))
    else:
        _show(tables, last, fastest, name)
    return INTERRUPTED if interrupted else 0


def _kinds(options: argparse.Namespace, defaults: Options) -> dict[str, list[FilePrompt]]:
    """The prompts of each file, by the name of the file's kind. Without --prompt-file, those of the files that ship."""
    given: list[Path] | None = options.prompt_file
    chat: dict[str, Any] = {"chat": options.chat, "system": options.system}
    if given is None:
        cases = {each.name: each for each in files(__package__).joinpath("cases").iterdir()}
        return {
            name.partition(".")[0].replace("_", " "): parse_prompts(cases[name].read_bytes(), name, defaults, **chat)
            for name in sorted(cases, reverse=True)
        }
    names = [path.stem for path in given]
    for path in given:
        if given.count(path) > 1:
            raise BadPromptFile(f"the prompt file {path} is given twice: give each file once")
    return {
        name if names.count(name) == 1 and name != ALL else str(path): read_prompts(path, defaults, **chat)
        for path, name in zip(given, names, strict=True)
    }


def ways(modes: Sequence[Mode], lengths: Sequence[int]) -> list[Way]:
    """The ways to compare: the target alone, then, if in `modes`, fused, and remote with each fixed draft length of
    `lengths` and with automatic ones."""
    found = [Way(TARGET, Mode.TARGET)]
    if Mode.FUSED in modes:
        found.append(Way("fused", Mode.FUSED))
    if Mode.REMOTE in modes:
        found += [Way(f"remote k={length}", Mode.REMOTE, length) for length in lengths]
        found.append(Way("remote", Mode.REMOTE))
    return found


def shuffled(of: Sequence[Way], run: int, prompt: int) -> list[Way]:
    """The ways in an order drawn for this run and prompt (numbers from 0), so that no way always comes first."""
    order = list(of)
    Random(f"{run} {prompt}").shuffle(order)
    return order


def _measure(
    pair: Pair, found: list[Way], kinds: dict[str, list[FilePrompt]], runs: int, notes: Console
) -> Iterator[tuple[list[WayResult], Stats]]:
    """Generate all texts. Yields those of one prompt in all ways, and the statistics of mode `auto`, which knows the
    modes in the end."""
    prompts = [
        (kind, prompt, prompt_ids(pair, prompt.said, prompt.chat, prompt.system))
        for kind, several in kinds.items()
        for prompt in several
    ]
    all_ways = [*found, Way(AUTO, Mode.AUTO)]
    for way in found:
        _, prompt, ids = prompts[0]
        _write(pair, way, ids, replace(prompt.options, max_tokens=_WARM_UP))
    with _progress(notes, runs * len(prompts) * len(all_ways)) as advance:
        for run in range(runs):
            for number, (kind, prompt, ids) in enumerate(prompts):
                # Above temperature 0, another text in every run; the same one in all ways.
                options = replace(prompt.options, seed=((prompt.options.seed or 0) + run) % SEED_LIMIT)
                if not notes.is_terminal:
                    at = f"run {run + 1} of {runs}, prompt {number + 1} of {len(prompts)}"
                    notes.print(f"drafter: {at}", soft_wrap=True)
                texts, last = list[WayResult](), Stats()
                for way in shuffled(all_ways, run, number):
                    stats = _write(pair, way, ids, options)
                    ids_written, rate = tuple(stats.token_ids), stats.tokens_per_second or 0.0
                    counts = stats.ttft_ms, stats.drafted, stats.accepted
                    texts.append(WayResult(way.name, kind, run, number, ids_written, rate, *counts))
                    last = stats if way.mode is Mode.AUTO else last
                    advance()
                yield texts, last


def _write(pair: Pair, way: Way, ids: list[int], options: Options) -> Stats:
    chosen = replace(options.in_mode(way.mode).cold(), draft_n=way.draft_n)
    with pair.generate(ids, chosen) as generation:
        return generation.read().stats


@contextmanager
def _progress(notes: Console, total: int) -> Iterator[Callable[[], object]]:
    """A function to call after each text: it moves a bar on a terminal, else does nothing."""
    columns = TextColumn("comparing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as bar:
        task = bar.add_task("comparing", total=total)
        yield lambda: bar.advance(task)


def table(kind: str, texts: Sequence[WayResult]) -> WayComparison:
    """Compare `texts`. Every way must have those of the same prompts and runs, and `target` must be among the ways."""
    names = list(dict.fromkeys(text.way for text in texts))
    by_way = {name: {(text.kind, text.prompt, text.run): text for text in texts if text.way == name} for name in names}
    alone = by_way[TARGET]
    rows = [_row(name, by_way[name], alone) for name in names]
    ranked = sorted((row for row in rows if row.way != AUTO), key=lambda row: row.ratio, reverse=True)
    second = ranked[1].way if len(ranked) > 1 else None
    won = 0
    if second is not None:
        best_texts, others = by_way[ranked[0].way], by_way[second]
        won = sum(best_texts[key].tokens_per_second > others[key].tokens_per_second for key in alone)
    return WayComparison(kind, rows, ranked[0].way, second, won, len(alone))


def _row(name: str, texts: _Texts, alone: _Texts) -> ComparedWay:
    rates = [text.tokens_per_second for text in texts.values()]
    drafted = sum(text.drafted for text in texts.values())
    return ComparedWay(
        way=name,
        texts=len(texts),
        rate=median(rates),
        low=quantile(rates, 0.25),
        high=quantile(rates, 0.75),
        ratio=median(text.tokens_per_second / alone[key].tokens_per_second for key, text in texts.items()),
        ttft_ms=median(text.ttft_ms for text in texts.values()),
        acceptance=sum(text.accepted for text in texts.values()) / drafted if drafted else None,
        same=sum(text.token_ids == alone[key].token_ids for key, text in texts.items()),
    )


def _show(tables: list[WayComparison], last: Stats, fastest: Mode | None, name: str) -> None:
    out = Console(markup=False, highlight=False)
    for each in tables:
        title = f"{name}: {each.kind}, {counted(each.texts, 'text')} each"
        grid = Grid(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        shown = _COLUMNS if out.width >= _WIDE else _FEW
        for heading in shown:
            grid.add_column(heading, justify="left" if heading == "way" else "right", no_wrap=True)
        for row in each.rows:
            cells = (
                row.way,
                _rate(row.rate),
                f"{row.ratio:.2f}",
                f"{_rate(row.low)} to {_rate(row.high)}",
                f"{row.ttft_ms:.0f} ms",
                "-" if row.acceptance is None else f"{row.acceptance:.0%}",
                f"{row.same}/{row.texts}",
            )
            grid.add_row(*cells[: len(shown)], style="bold green" if row.way == each.best else "")
        out.print(grid)
        out.print(conclusion(each) + "\n", soft_wrap=not out.is_terminal)
    took = "has not settled yet" if fastest is None else f"took {fastest}"
    out.print(f"auto {took}: {last.why}", soft_wrap=not out.is_terminal)


def _rate(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def conclusion(each: WayComparison) -> str:
    """The sentence that names the fastest fixed mode, and the ratio of `auto`, which chooses among the modes."""
    ratios = {row.way: row.ratio for row in each.rows}
    fastest = "" if each.best == TARGET else f"{each.best}, {ratios[each.best]:.2f} times "
    said = f"fastest fixed mode: {fastest}the target alone"
    if AUTO in ratios:
        said += f" (auto: {ratios[AUTO]:.2f})"
    if each.second is not None:
        said += f"; faster than {each.second} in {each.won} of {counted(each.texts, 'text')}"
    return said if each.clear else said + ", which is too close to call"
