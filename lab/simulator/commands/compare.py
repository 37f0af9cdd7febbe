"""The command `compare`: puts runs side by side."""

import argparse
import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lab.simulator.commands.command import ERRORS, INTERRUPTED, Command, complain
from lab.simulator.commands.flags import add_jobs, add_set, whole
from lab.simulator.commands.output import standard_output
from lab.simulator.commands.progress import shown
from lab.simulator.comparison import tables
from lab.simulator.comparison.page import page
from lab.simulator.configuration.reading import read
from lab.simulator.results.replications import replicated
from lab.simulator.results.summary import BadSummary, Summary, summary
from lab.simulator.results.summary import read as read_summary
from lab.simulator.running.setting import MS
from specpair.command_line.parser import Parser
from specpair.command_line.table import print_table
from specpair.protocol.terminal_text import one_line


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="folders that 'simulator run' wrote, or configurations, which are run; the first is compared with each "
        "other",
    )
    files = parser.add_argument_group("configurations")
    add_set(files)
    files.add_argument("--replications", type=whole, metavar="N", help="in place of those of the files")
    add_jobs(files)
    output = parser.add_argument_group("output")
    output.add_argument("--csv", type=Path, metavar="FILE", help="write all differences with their intervals")
    output.add_argument("--page", type=Path, metavar="FILE", help="write a page with charts and tables, as HTML")


def _run(options: argparse.Namespace) -> int:
    if len(options.runs) < 2:
        return complain("give two runs at least: folders that 'simulator run' wrote, or configurations")
    runs, interrupted = list[Summary](), False
    try:
        for name, path in zip(_names(options.runs), options.runs, strict=True):
            if path.is_dir():
                runs.append(replace(read_summary(path), name=name))
            elif not interrupted:
                runs.append(replace(_simulated(path, options), name=name))
                interrupted = runs[-1].interrupted
        runs = [each for each in runs if each.replications]
        if len(runs) > 1:
            _write(options, runs)
    except ERRORS as error:
        return complain(error)
    except OSError as error:
        return complain(f"{error.filename} cannot be written: {error.strerror}")
    if interrupted:
        complain("interrupted: this is what came" if len(runs) > 1 else "interrupted before there were two runs")
        return INTERRUPTED
    return 0


def _simulated(path: Path, options: argparse.Namespace) -> Summary:
    """The run of a configuration. Raises BadSummary, and others of ERRORS."""
    if not path.exists():
        raise BadSummary(f"{path} is neither a folder of results nor a configuration")
    given = [] if options.replications is None else [f"replications={options.replications}"]
    configuration = read(path, [*options.set, *given])
    with shown(configuration.replications * configuration.sim_time_ms * MS, path.stem) as progress:
        return summary(path.stem, configuration, replicated(configuration, jobs=options.jobs, progress=progress))


def _names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, or the whole path where others have the same last part."""
    short = [path.stem if path.suffix in (".yaml", ".yml") else path.name for path in paths]
    names = [str(path) if short.count(name) > 1 else name for path, name in zip(paths, short, strict=True)]
    return [name if names.count(name) == 1 else f"{name} ({at})" for at, name in enumerate(names, 1)]


def _write(options: argparse.Namespace, runs: Sequence[Summary]) -> None:
    out = standard_output()
    print_table(tables.measures(runs), out)
    keys = tables.keys(runs)
    if keys.rows:
        print_table(keys, out)
    for each in tables.said(runs):
        out.print(one_line(each), soft_wrap=True)
    if options.csv is not None:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(tables.rows(runs))
    if options.page is not None:
        options.page.write_text(page(runs), encoding="utf-8")


COMPARE = Command(
    "compare",
    "RUN RUN … [FLAGS]",
    "Puts runs side by side, and says which differences are more than chance.",
    _run,
    _add_arguments,
    (
        "specpair simulator compare jsq2 wjsq --page compared.html",
        "specpair simulator compare remote.yaml fused.yaml --replications 8",
    ),
)
