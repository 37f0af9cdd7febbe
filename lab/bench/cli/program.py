"""The command `drafter bench`, with `report` below it, as the lab's entry point names it."""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path

from rich.console import Console

from drafter_client.cli.steps import INTERRUPTED
from lab.bench.analysis import analyse
from lab.bench.asking import ProbedSide
from lab.bench.case import Case
from lab.bench.case_files import chosen_cases
from lab.bench.cli.command_line import BenchOptions, bench_options, bench_parser, report_parser
from lab.bench.errors import BadBench, BadSide
from lab.bench.measuring import Measuring, shown
from lab.bench.page import write_reports
from lab.bench.preparing import asked_of, described, prepared, probed
from lab.bench.record_files import RUN, RecordsWriter, read_results, read_run, write_run
from lab.bench.records import Results, Run
from lab.bench.sides import sides_of
from lab.bench.tables import show
from specpair.command_line.parser import Parsers
from specpair.command_line.table import standard_output
from specpair.numbers import counted

Note = Callable[[str], None]


def run_bench(options: argparse.Namespace) -> int:
    """Run the command. Returns the exit status: 1 if a request failed, 130 if it was interrupted."""
    notes = Console(stderr=True, markup=False, highlight=False)
    out = standard_output()
    chosen: BenchOptions = options.bench
    if options.list:
        for case in chosen_cases(chosen.case, chosen.cases):
            out.print(f"{case.name:22}{case.group:14}{case.description}", soft_wrap=True)
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
    report = write_reports(analysis, results, folder)[0]
    note(f"the results are in {folder}, the report is {report}")
    return 1 if failed else 0


def _interrupted(folder: Path, out: Console, note: Note) -> int:
    """Show the results so far of an interrupted run."""
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
        run, sides = await _begun(options, folder, stack, note)
        with closing(RecordsWriter(folder)) as writer:
            measuring = Measuring(run, sides, writer)
            with shown(notes, measuring.stretches, run.repetitions) as watch:
                try:
                    await measuring.measure(watch)
                except BadSide as error:
                    raise BadSide(f"{error}. The results so far are kept: continue with --resume {folder}") from None
    return read_results(folder)


async def _begun(
    options: argparse.Namespace, folder: Path, stack: AsyncExitStack, note: Note
) -> tuple[Run, list[ProbedSide]]:
    """A new run, or the run in the folder."""
    chosen: BenchOptions = options.bench
    asked = None
    if options.resume is None:
        sides = sides_of(
            chosen.side, chosen.modes, models=chosen.model, keys=chosen.key, prices=chosen.price, extras=chosen.extra
        )
        cases = [_changed(each, chosen) for each in chosen_cases(chosen.case, chosen.cases)]
        asked = asked_of(chosen, sides, cases)
        if not (folder / RUN).is_file():
            found = await probed(sides, chosen.timeout, stack, note)
            ready = await prepared(cases, found, note, all_needed=bool(chosen.case or chosen.cases))
            run = described(chosen, asked, ready, found)
            write_run(folder, run)
            return run, found
    run = read_run(folder)
    if asked is not None and run.asked != asked:
        raise BadBench(
            f"{folder} has a run of other sides, cases or options: give another --output, or continue that run with "
            f"--resume {folder}"
        )
    note(f"going on with the run in {folder}")
    return run, await probed(run.sides, run.timeout, stack, note)


def _changed(case: Case, chosen: BenchOptions) -> Case:
    """The case with its values overridden by flags."""
    given = {"requests": chosen.requests, "concurrency": chosen.clients, "output_tokens": chosen.output_tokens}
    return case.model_copy(update={name: value for name, value in given.items() if value is not None})


def run_bench_report(arguments: Sequence[str]) -> int:
    """`drafter bench report DIR`. Returns the exit status. Raises BadBench."""
    options = report_parser().parse(arguments)
    results = read_results(options.folder)
    analysis = analyse(results, options.baseline)
    show(analysis, standard_output())
    report = write_reports(analysis, results, options.folder)[0]
    print(f"drafter: the report is in {report}, its figures beside it", file=sys.stderr)
    return 0


PARSERS: Parsers = {
    "drafter bench": bench_parser,
    "drafter bench report": report_parser,
}


def run(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status. Exits with status 2 for bad flags. Raises DrafterError."""
    if arguments and arguments[0] == "report":
        return run_bench_report(arguments[1:])
    return run_bench(bench_options(arguments))
