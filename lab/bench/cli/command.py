"""`drafter bench`: prepares a run or finds one that was interrupted, measures what is left, and shows the table."""

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

from rich.console import Console

from drafter_client.cli.steps import INTERRUPTED
from lab.bench.cases.reading import LoadedCase, chosen_cases
from lab.bench.cli.output import standard_output
from lab.bench.endpoint.side import side_of_record, sides_of
from lab.bench.errors import BadBench, BadSide
from lab.bench.load.jobs import PreparedCase
from lab.bench.meters.energy import all_meters
from lab.bench.options import BenchOptions
from lab.bench.record_files import RUN, RecordsWriter, read_results, read_run
from lab.bench.records import Results, Run
from lab.bench.report.files import write_reports
from lab.bench.report.terminal import show
from lab.bench.run.folder import read_cases, write_folder
from lab.bench.run.listing import show_cases
from lab.bench.run.measuring import Measuring
from lab.bench.run.preparing import ProbedSide, asked_of, described, prepared, probed
from lab.bench.run.progress import shown
from lab.bench.statistics.analysis import analyse
from specpair.numbers import counted

Note = Callable[[str], None]


def run_bench(options: argparse.Namespace) -> int:
    """Run the command. Returns the exit status: 1 if a request failed, 130 if it was interrupted."""
    notes = Console(stderr=True, markup=False, highlight=False)
    out = standard_output()
    chosen: BenchOptions = options.bench
    if options.list:
        show_cases(chosen_cases(chosen.case, chosen.cases), out)
        return 0
    folder = options.resume or chosen.output or Path(time.strftime("bench-%Y%m%d-%H%M%S"))

    def note(said: str) -> None:
        notes.print(f"drafter: {said}", soft_wrap=True)

    try:
        results = asyncio.run(_bench(options, folder, notes, note))
    except KeyboardInterrupt:
        return _interrupted(folder, out, note)
    analysis = analyse(results)
    show(analysis, out)
    failed = [each for each in results.requests if each.failure is not None]
    if failed:
        first, made = failed[0], counted(len(results.requests), "request")
        why = first.failure.message if first.failure is not None else ""
        note(f"{len(failed)} of {made} failed, the first of {first.side} in {first.case}: {why}")
        note(f"--resume {folder} asks them again")
    report, *_ = write_reports(analysis, results, folder)
    note(f"the results are in {folder}, the report is {report}; with a picture: drafter bench report {folder}")
    return 1 if failed else 0


def _interrupted(folder: Path, out: Console, note: Note) -> int:
    """Show what was measured."""
    if (folder / RUN).is_file():
        results = read_results(folder)
        show(analyse(results), out)
        wanted = results.requests_wanted
        note(f"interrupted: {len(results.requests)} of {wanted} requests are in {folder}; go on: --resume {folder}")
    else:
        note("interrupted before anything was measured")
    return INTERRUPTED


async def _bench(options: argparse.Namespace, folder: Path, notes: Console, note: Note) -> Results:
    async with AsyncExitStack() as stack:
        run, cases, sides = await _begun(options, folder, stack, note)
        with closing(RecordsWriter(folder)) as writer:
            measuring = Measuring(run, cases, sides, writer, meters=all_meters())

            def chunks() -> int:
                return sum(each.client.chunks for each in sides)

            left = [each for at_once in measuring.stretches() for each in at_once]
            with shown(notes, left, run.repetitions, chunks) as watch:
                try:
                    await measuring.measure(watch)
                except BadSide as error:
                    raise BadSide(f"{error}. What was measured is kept: go on with --resume {folder}") from None
    return read_results(folder)


async def _begun(
    options: argparse.Namespace, folder: Path, stack: AsyncExitStack, note: Note
) -> tuple[Run, Sequence[PreparedCase], list[ProbedSide]]:
    """A new run, or the one in the folder."""
    chosen: BenchOptions = options.bench
    asked: dict[str, Any] | None = None
    if options.resume is None:
        sides = sides_of(
            chosen.side, chosen.modes, models=chosen.model, keys=chosen.key, prices=chosen.price, extras=chosen.extra
        )
        loaded = [_changed(each, chosen) for each in chosen_cases(chosen.case, chosen.cases)]
        asked = asked_of(chosen, sides, loaded)
        if not (folder / RUN).is_file():
            found = await probed(sides, chosen.timeout, stack, note)
            pairs = await prepared(loaded, found, note, all_needed=bool(chosen.case or chosen.cases))
            run = described(chosen, asked, pairs, found)
            cases = [each for _, each in pairs]
            write_folder(folder, run, cases)
            return run, cases, found
    run = read_run(folder)
    if asked is not None and run.options.get("asked") != asked:
        raise BadBench(
            f"{folder} has a run of other sides, cases or options: give another --output, or go on with that run by "
            f"--resume {folder}"
        )
    known = [side_of_record(each) for each in run.sides]
    note(f"going on with the run in {folder}")
    return run, read_cases(folder), await probed(known, float(run.options.get("timeout", chosen.timeout)), stack, note)


def _changed(loaded: LoadedCase, chosen: BenchOptions) -> LoadedCase:
    """The case with what the flags give in place of its own."""
    given = {"requests": chosen.requests, "concurrency": chosen.clients, "output_tokens": chosen.output_tokens}
    return loaded.changed(**{name: value for name, value in given.items() if value is not None})
