"""The command `run`: runs a configuration, prints the results, and writes a folder of results."""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from lab.simulator.commands.command import (
    INTERRUPTED,
    SimulatorCommand,
    add_jobs,
    add_set,
    complain,
    note,
)
from lab.simulator.configuration.reading import read
from lab.simulator.results.page import page
from lab.simulator.results.replications import Replication, processes, replicate
from lab.simulator.results.summary import RunSummary, show
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
        return complain(f"{folder} has the results of a run already: name another folder, or remove this folder")
    folder.mkdir(parents=True, exist_ok=True)
    count, found = configuration.replications, list[Replication]()
    hidden = not sys.stderr.isatty()
    try:
        with (
            processes(min(options.jobs, count), partial(replicate, folder=folder)) as replications,
            Progress(console=Console(stderr=True), transient=True, disable=hidden) as bar,
        ):
            task = bar.add_task("replications", total=count)
            for each in replications([(configuration, number) for number in range(count)]):
                found.append(each)
                bar.advance(task)
    except KeyboardInterrupt:
        complain(f"interrupted: {len(found)} of {count} replications have ended")
    if found:
        run = RunSummary.of(options.file.stem, configuration, found)
        run.write(folder)
        with shared_files.replacing(folder / "report.html") as file:
            file.write(page(run).encode())
        show(run, standard_output())
        note(f"the results are in {folder}, the report is {folder / 'report.html'}")
    return 0 if len(found) == count else INTERRUPTED


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
