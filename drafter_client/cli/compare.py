"""`drafter compare`: writes every prompt in every way by turns, and shows tables, a plot and a conclusion."""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from drafter_client.batch.prompts import FilePrompt, parse_prompts
from drafter_client.cli.pair_making import pair_of
from drafter_client.cli.text_steps import check_system, drawing_options, prompt_ids, read_prompts
from drafter_client.display.comparison import (
    AUTO,
    TARGET,
    Way,
    WayComparison,
    WayResult,
    draw,
    shuffled,
    table,
    text_of,
    ways,
)
from drafter_client.errors import BadPromptFile, NoPicture
from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from drafter_client.statistics import Stats
from specpair.counted import counted
from specpair.speculation.sampling.gumbel import SEED_LIMIT

_WARM_UP = 8  # tokens that each way generates before the measurement
_PICTURE = Path("compare.png")
ALL = "all"
_COLUMNS = ("way", "tokens/s", "x target", "middle half", "TTFT", "accepted", "same text")
_FEW, _WIDE = _COLUMNS[:3], 76  # on a terminal of fewer than 76 columns


def run_compare(options: argparse.Namespace) -> int:
    """Generate every text in every way, then show the tables and the plot. Returns the exit status."""
    chosen = replace(drawing_options(options), lookup=options.lookup, lockstep=options.lockstep).settled()
    _check_picture(options.png)
    check_system(options)
    kinds = _kinds(options, chosen)
    notes = Console(stderr=True, markup=False, highlight=False)
    with pair_of(options) as pair:
        found = ways(pair.modes, _allowed(options.lengths, pair.target.max_drafts, notes))
        texts, last = _measure(pair, found, kinds, options.runs, notes)
        link, name, fastest = pair.round_trip_ms, pair.target.name, pair.fastest
    tables = [table(kind, [text for text in texts if text.kind == kind]) for kind in kinds]
    if len(kinds) > 1:
        tables.append(table(ALL, [*texts]))
    if options.json:
        print(json.dumps(_report(tables, texts, last, fastest, name, link)))
    else:
        _show(tables, last, fastest, name)
    if not options.no_png:
        _draw(tables, f"{name}, round trip {link:.1f} ms", options.png, notes)
    return 0


def _allowed(lengths: list[int], most: int, notes: Console) -> list[int]:
    """Those of the draft lengths that are at most `most`, the verifier's limit. A note says if others are left out."""
    if any(length > most for length in lengths):
        notes.print(f"drafter: --lengths: this verifier judges {most} draft tokens at once, more are left out")
    return [length for length in lengths if length <= most]


def _kinds(options: argparse.Namespace, defaults: Options) -> dict[str, list[FilePrompt]]:
    """The prompts of each file, by the name of the file's kind. Without --prompt-file, those of the files that ship."""
    given: list[Path] | None = options.prompt_file
    chat: dict[str, Any] = {"chat": options.chat, "system": options.system}
    if given is None:
        cases = sorted(files(__package__).joinpath("cases").iterdir(), key=lambda each: each.name, reverse=True)
        return {
            case.name.partition(".")[0].replace("_", " "): parse_prompts(case.read_bytes(), case.name, defaults, **chat)
            for case in cases
        }
    names = [path.stem for path in given]
    for path in given:
        if given.count(path) > 1:
            raise BadPromptFile(f"the prompt file {path} is given twice: each is a kind of its own")
    return {
        name if names.count(name) == 1 and name != ALL else str(path): read_prompts(path, defaults, **chat)
        for path, name in zip(given, names, strict=True)
    }


def _measure(
    pair: Pair, found: list[Way], kinds: dict[str, list[FilePrompt]], runs: int, notes: Console
) -> tuple[list[WayResult], Stats]:
    """Generate all texts. Returns them, and the last statistics of mode `auto`, which knows the modes by then."""
    prompts = [
        (kind, prompt, prompt_ids(pair, prompt.said, prompt.chat, prompt.system))
        for kind, several in kinds.items()
        for prompt in several
    ]
    all_ways = [*found, Way(AUTO, Mode.AUTO)]
    for way in found:
        _, prompt, ids = prompts[0]
        _write(pair, way, ids, replace(prompt.options, max_tokens=_WARM_UP))
    texts: list[WayResult] = []
    last = Stats()
    with _progress(notes, runs * len(prompts) * len(all_ways)) as advance:
        for run in range(runs):
            for number, (kind, prompt, ids) in enumerate(prompts):
                # Above temperature 0, another text in every run; the same one in all ways.
                options = replace(prompt.options, seed=((prompt.options.seed or 0) + run) % SEED_LIMIT)
                for way in shuffled(all_ways, run, number):
                    stats = _write(pair, way, ids, options)
                    texts.append(text_of(way.name, kind, run, number, stats))
                    last = stats if way.mode is Mode.AUTO else last
                    advance()
    order = {way.name: at for at, way in enumerate(all_ways)}
    return sorted(texts, key=lambda text: order[text.way]), last


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


def _show(tables: list[WayComparison], last: Stats, fastest: Mode | None, name: str) -> None:
    out = Console(markup=False, highlight=False)
    for each in tables:
        grid = Grid(
            title=f"{name}: {each.kind}, {counted(each.texts, 'text')} each",
            title_justify="left",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
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
    said = "fastest fixed mode: the target alone"
    if each.best != TARGET:
        said = f"fastest fixed mode: {each.best}, {ratios[each.best]:.2f} times the target alone"
    if AUTO in ratios:
        said += f" (auto: {ratios[AUTO]:.2f})"
    if each.second is not None:
        said += f"; faster than {each.second} in {each.won} of {counted(each.texts, 'text')}"
    return said if each.clear else said + ", which is too close to call"


def _report(
    tables: list[WayComparison], texts: list[WayResult], last: Stats, fastest: Mode | None, name: str, link: float
) -> dict[str, Any]:
    return {
        "model": name,
        "round_trip_ms": round(link, 3),
        "tables": [asdict(each) | {"clear": each.clear} for each in tables],
        "auto": {"took": fastest, "why": last.why},
        "texts": [text._asdict() for text in texts],
    }


def _check_picture(path: Path | None) -> None:
    """Raise NoPicture for a path that cannot be written: before minutes of measuring, not after."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise NoPicture(f"the picture {path} cannot be written: there is no such folder, or it is one itself")


def _draw(tables: list[WayComparison], title: str, named: Path | None, notes: Console) -> None:
    """Write the plot. Raises NoPicture only if a file was named; else a note says why there is none."""
    path = named or _PICTURE
    try:
        draw(tables, title, path)
    except NoPicture as error:
        if named is not None:
            raise
        notes.print(f"drafter: no picture: {error}", soft_wrap=True)
    else:
        notes.print(f"drafter: the picture is in {path}", soft_wrap=True)
