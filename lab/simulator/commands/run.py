"""The command `run`: runs a configuration, prints what came of it, and writes a folder of results."""

import argparse
import time
from pathlib import Path

from lab.simulator.commands.command import ERRORS, INTERRUPTED, Command, complain
from lab.simulator.commands.flags import add_jobs, add_set
from lab.simulator.commands.output import note, standard_output
from lab.simulator.commands.progress import shown
from lab.simulator.configuration.reading import read
from lab.simulator.results import files
from lab.simulator.results.replications import replicated
from lab.simulator.results.report.terminal import show
from lab.simulator.results.report.written import write_report
from lab.simulator.results.summary import summary
from lab.simulator.running.setting import MS
from specpair.command_line.parser import Parser
from specpair.protocol.terminal_text import one_line


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a configuration")
    changed = parser.add_argument_group("changes to the file")
    changed.add_argument("--seed", type=int, metavar="N", help="all the chance, in place of the file's seed")
    changed.add_argument("--replications", type=int, metavar="N", help="runs with other chance, for intervals")
    add_set(changed)
    output = parser.add_argument_group("run")
    output.add_argument("--output", type=Path, metavar="DIR", help="folder for the results (default: FILE-DATE)")
    add_jobs(output)
    output.add_argument("--no-png", action="store_true", help="no picture, which needs matplotlib")


def _run(options: argparse.Namespace) -> int:
    given = [("seed", options.seed), ("replications", options.replications)]
    overrides = [*options.set, *(f"{key}={value}" for key, value in given if value is not None)]
    folder: Path = options.output or Path(f"{options.file.stem}-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        configuration = read(options.file, overrides)
        if any(folder.glob("requests-*")):
            return complain(f"{folder} has the results of a run already: name another folder, or remove it")
        folder.mkdir(parents=True, exist_ok=True)
        asked = configuration.replications * configuration.sim_time_ms * MS
        with shown(asked) as progress:
            found = replicated(configuration, jobs=options.jobs, folder=folder, progress=progress)
        run = summary(options.file.stem, configuration, found)
        report = write_report(run, folder, picture=not options.no_png, note=note)
    except ERRORS as error:
        return complain(error)
    except FileExistsError:
        return complain(f"{folder} is a file: name a folder")
    except OSError as error:
        return complain(f"{error.filename or folder} cannot be written: {error.strerror or error}")
    out = standard_output()
    show(run, out)
    for line in filter(None, (each.fidelity for each in found)):
        out.print(one_line(line), soft_wrap=True)
    if (missing := files.no_parquet()) is not None:
        note(missing)
    note(f"the results are in {folder}, the report is {report}")
    if run.interrupted:
        seconds = sum(each.seconds for each in found)
        complain(f"interrupted: this is what came up to {seconds:g} of {asked:g} simulated seconds")
        return INTERRUPTED
    return 0


RUN = Command(
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
