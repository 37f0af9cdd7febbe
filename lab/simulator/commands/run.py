"""The command `run`: runs a configuration, prints what came of it, and writes a folder of results."""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from lab.simulator.commands.command import (
    INTERRUPTED,
    SimulatorCommand,
    add_jobs,
    add_set,
    complain,
    note,
)
from lab.simulator.configuration.keys import MS
from lab.simulator.configuration.reading import read
from lab.simulator.results.page import page
from lab.simulator.results.replications import replicated
from lab.simulator.results.summary import RunSummary, show
from lab.simulator.simulation import Stopped
from specpair import shared_files
from specpair.command_line.parser import Parser
from specpair.command_line.table import standard_output


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a configuration")
    changed = parser.add_argument_group("changes to the file")
    changed.add_argument("--seed", type=int, metavar="N", help="all the chance, in place of the file's seed")
    changed.add_argument("--replications", type=int, metavar="N", help="runs with other chance, for intervals")
    add_set(changed)
    output = parser.add_argument_group("run")
    output.add_argument("--output", type=Path, metavar="DIR", help="folder for the results (default: FILE-DATE)")
    add_jobs(output)


def _run(options: argparse.Namespace) -> int:
    given = [("seed", options.seed), ("replications", options.replications)]
    overrides = [*options.set, *(f"{key}={value}" for key, value in given if value is not None)]
    folder: Path = options.output or Path(f"{options.file.stem}-{time.strftime('%Y%m%d-%H%M%S')}")
    configuration = read(options.file, overrides)
    if any(folder.glob("requests-*")):
        return complain(f"{folder} has the results of a run already: name another folder, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    asked = configuration.replications * configuration.sim_time_ms * MS
    with _progress(asked) as progress:
        found = replicated(configuration, jobs=options.jobs, folder=folder, progress=progress)
    run = RunSummary.of(options.file.stem, configuration, found)
    run.write(folder)
    with shared_files.replacing(folder / "report.html") as file:
        file.write(page(run).encode())
    show(run, standard_output())
    note(f"the results are in {folder}, the report is {folder / 'report.html'}")
    if run.interrupted:
        seconds = sum(each.seconds for each in found)
        complain(f"interrupted: this is what came up to {seconds:g} of {asked:g} simulated seconds")
        return INTERRUPTED
    return 0


@contextmanager
def _progress(seconds: float) -> Iterator[Callable[[float], None]]:
    """A context in which the function that it gives shows on standard error, if that is a terminal, how many of
    `seconds` simulated ones are over. The bar vanishes at its end.

    In it, Ctrl-C has that function raise Stopped at its next call. A second Ctrl-C raises KeyboardInterrupt at once.
    """
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
        TimeRemainingColumn(),
    )
    before = signal.signal(signal.SIGINT, stop)
    try:
        with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("simulated", total=seconds)

            def tell(now: float) -> None:
                bar.update(task, completed=now)
                if stopped:
                    raise Stopped

            yield tell
    finally:
        signal.signal(signal.SIGINT, before)


RUN = SimulatorCommand(
    "run",
    "FILE [FLAGS]",
    "Runs a configuration in virtual time, prints its figures, and writes them to a folder with a report.",
    _run,
    _add_arguments,
    (
        "specpair simulator run fleet.yaml",
        "specpair simulator run fleet.yaml --set router=jsq2 --set workload.rate_rps=4 --output jsq2",
    ),
)
