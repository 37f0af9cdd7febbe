"""The command `capacity`: finds the load that a fleet carries within its objective."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.simulator.commands.command import (
    INTERRUPTED,
    SimulatorCommand,
    add_jobs,
    complain,
    note,
    tell_tried,
    whole,
)
from lab.simulator.commands.search import add_space, search_of
from lab.simulator.configuration.reading import read
from lab.simulator.results.replications import evaluate, processes
from lab.simulator.search.capacity import Capacity, boundaries, size_of
from lab.simulator.search.comparison import BadSearch, SearchCandidate, label, overrides, varied
from specpair.command_line.parser import Parser

_TIMES = 64  # the greatest count that is tried, in terms of the first


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a configuration")
    add_space(parser)
    parser.add_argument(
        "--of",
        metavar="KEY",
        help="a key with a whole number, such as devices.drafters.laptop.count, or workload.rate_rps. With drafters "
        "the load grows: rate_rps or users in proportion, since each device brings its share. Of keys of verifiers the "
        "least that holds is found, of all others the most (default: drafters of all kinds, in the file's proportions)",
    )
    parser.add_argument(
        "--start",
        type=whole,
        metavar="N",
        help=f"the count that is tried first (default: the file's); it ends at {_TIMES} times as many",
    )
    parser.add_argument(
        "--attainment",
        type=float,
        default=0.95,
        metavar="SHARE",
        help="least share of requests within slo (default: %(default)s)",
    )
    effort = parser.add_argument_group("effort")
    effort.add_argument(
        "--replications", type=whole, default=4, metavar="N", help="of each count (default: %(default)s)"
    )
    effort.add_argument(
        "--precision",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="how far apart the last two counts may be; 0: by 1 (default: %(default)s)",
    )
    add_jobs(effort)


def _run(options: argparse.Namespace) -> int:
    several = _prepared(options)
    tried, ended = list[tuple[Mapping[str, Any], Capacity]](), False
    try:
        with processes(options.jobs, evaluate) as evaluate_all:
            for choice, capacity in several:
                if choice:
                    note(label(choice))
                before = tried[-1][1].boundary[0] if tried else None
                tried.append((choice, capacity))
                capacity.evaluate = evaluate_all
                capacity.find(before or options.start or capacity.size.start, near=before is not None)
        ended = True
    except KeyboardInterrupt:
        begun = any(capacity.trials for _, capacity in several)
        complain("interrupted" if begun else "interrupted before the first count was tried")
    finally:
        found = [each for each in tried if each[1].trials]
        if found and len(several) > 1:
            tell_tried([f"{len(found)} of {len(several)} combinations; intervals are 95 %."], boundaries(found))
        elif found:
            tell_tried([*found[0][1].sentences(ended)], found[0][1].table())
    return 0 if ended else INTERRUPTED


def _prepared(options: argparse.Namespace) -> list[tuple[Mapping[str, Any], Capacity]]:
    """Check the arguments before anything runs. Raises BadSearch and others of ERRORS.

    Returns each combination of values, by column, with the search for its boundary.
    """
    if options.precision < 0:
        raise BadSearch("--precision is 0 or more")
    if not 0 < options.attainment <= 1:
        raise BadSearch(f"--attainment: {options.attainment:g} is no share above 0 and up to 1, such as 0.95")
    keys = search_of(options, {})
    choices = keys.choices() if keys.space or keys.variants else [{}]
    return [(choice, _capacity(options, [*options.set, *overrides(keys.changes(choice))])) for choice in choices]


def _capacity(options: argparse.Namespace, changed: list[str]) -> Capacity:
    """The search for one boundary. `changed`: keys of the file, each as KEY=VALUE. Raises BadSearch and others."""
    configuration = read(options.file, changed)
    if not configuration.promises:
        keys = "slo.ttft_ms, slo.tpot_ms and slo.latency_ms"
        raise BadSearch(f"{options.file} promises nothing: give one of the keys {keys}")
    size = size_of(configuration, options.of)

    def made(count: int) -> SearchCandidate:
        changes = size.changes(count)
        return SearchCandidate(count, changes, varied(options.file, changed, changes))

    start = options.start or size.start
    if start < size.floor:
        raise BadSearch(f"--start is {start}: it is {size.floor} at least, one of each kind")
    made(start)
    found = Capacity(size, options.attainment, made, lambda asked: [], _TIMES * start, options.replications)
    found.precision, found.told = options.precision, note
    return found


CAPACITY = SimulatorCommand(
    "capacity",
    "FILE [--of KEY] [--vary KEY=VALUE,VALUE] [FLAGS]",
    "Finds the most drafters, users or requests, or the least verifiers, with which a fleet keeps its promise.",
    _run,
    _add_arguments,
    (
        "specpair simulator capacity fleet.yaml",
        "specpair simulator capacity fleet.yaml --of devices.verifiers.big.count --attainment 0.99",
        "specpair simulator capacity fleet.yaml --vary devices.verifiers.big.http.workers=0,4,16",
        "specpair simulator capacity fleet.yaml --of workload.rate_rps --set slo.ttft_ms=1500",
    ),
)
