"""The command `search`: compares configurations that differ in some keys."""

import argparse
import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.simulator.commands.command import (
    INTERRUPTED,
    SimulatorCommand,
    add_jobs,
    add_set,
    complain,
    note,
    tell_tried,
)
from lab.simulator.results.replications import evaluate, processes
from lab.simulator.search.comparison import (
    BadSearch,
    Comparison,
    SearchKeys,
    candidates,
    checked,
    parse_vary,
    read_search,
    run,
)
from specpair.command_line.parser import Parser


def add_space(parser: Parser) -> None:
    """Add the flags that say which keys vary."""
    parser.add_argument("--search", type=Path, metavar="FILE", help="a file of a search; flags replace its keys")
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="KEY=VALUE,VALUE",
        help="values that a key may have, such as devices.drafters[laptop].count=10,20; can be given several times",
    )
    add_set(parser)


def search_of(options: argparse.Namespace, changes: Mapping[str, Any]) -> SearchKeys:
    """The search in the file, overridden by flags. `changes`: of its keys beside its space. Raises BadSearch."""
    keys = SearchKeys() if options.search is None else read_search(options.search)
    varied = dict(map(parse_vary, options.vary))
    return checked({**keys.model_dump(), **changes, "space": {**keys.space, **varied}}, "the flags")


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the configuration that is varied")
    add_space(parser)
    parser.add_argument(
        "--objectives", metavar="NAME,NAME", help="measures to compare by (default: throughput_tps,ttft_p95_ms)"
    )
    parser.add_argument(
        "--attainment",
        type=float,
        metavar="SHARE",
        help="least share of requests within slo, such as 0.95 (default: any)",
    )
    parser.add_argument("--replications", type=int, metavar="N", help="of each candidate (default: 5)")
    add_jobs(parser)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all measures of all candidates")


def _run(options: argparse.Namespace) -> int:
    keys = _keys(options)
    objectives = keys.goals()
    found, complaints = candidates(keys, options.file, options.set)
    for each in complaints:
        note(f"cannot run: {each}")
    if complaints:
        some = f"{len(complaints)} of {len(found) + len(complaints)} combinations"
        raise BadSearch(f"{some} cannot run: change the values, or name those that can as variants in a file")
    interrupted = False
    try:
        with processes(options.jobs, evaluate) as evaluate_all:
            run(found, keys.replications, evaluate_all)
    except KeyboardInterrupt:
        interrupted = True
    begun = [each for each in found if each.replications]
    if begun:
        comparison = Comparison(begun, objectives, keys.attainment)
        tell_tried([f"{len(begun)} candidates under the same loads; intervals are 95 %."], comparison.table())
        if options.csv is not None:
            with options.csv.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(comparison.rows())
    if interrupted:
        complain("interrupted: results so far" if begun else "interrupted before the first replication ended")
        return INTERRUPTED
    return 0


def _keys(options: argparse.Namespace) -> SearchKeys:
    given = {"attainment": options.attainment, "replications": options.replications}
    given["objectives"] = options.objectives and options.objectives.split(",")
    return search_of(options, {name: value for name, value in given.items() if value is not None})


SEARCH = SimulatorCommand(
    "search",
    "FILE [--search FILE] [--vary KEY=VALUE,VALUE] [FLAGS]",
    "Compares configurations that differ in some keys, under the same loads.",
    _run,
    _add_arguments,
    (
        "specpair simulator search fleet.yaml --vary router=jsq,wjsq2 --vary gamma=2,4,8",
        "specpair simulator search fleet.yaml --search search.yaml --csv search.csv",
    ),
)
