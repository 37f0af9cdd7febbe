"""The command `capacity`: finds the load that a fleet carries within its objective."""

import argparse
from pathlib import Path

from lab.simulator.commands.command import (
    INTERRUPTED,
    SimulatorCommand,
    add_jobs,
    add_set,
    complain,
    note,
    tell_tried,
    whole,
)
from lab.simulator.configuration.reading import read
from lab.simulator.results.replications import evaluate, processes
from lab.simulator.search.capacity import Capacity, size_of
from lab.simulator.search.comparison import BadSearch, SearchCandidate, varied
from specpair.command_line.parser import Parser

_TIMES = 64  # the greatest count that is tried, in terms of the first


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a configuration")
    add_set(parser)
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
    capacity, start = _prepared(options)
    ended = False
    try:
        with processes(options.jobs, evaluate) as capacity.evaluate:
            capacity.find(start)
        ended = True
    except KeyboardInterrupt:
        complain("interrupted" if capacity.trials else "interrupted before the first count was tried")
    finally:
        if capacity.trials:
            tell_tried([*capacity.sentences(ended)], capacity.table())
    return 0 if ended else INTERRUPTED


def _prepared(options: argparse.Namespace) -> tuple[Capacity, int]:
    """Check the arguments before anything runs. Raises BadSearch and others of ERRORS."""
    if options.precision < 0:
        raise BadSearch("--precision is 0 or more")
    if not 0 < options.attainment <= 1:
        raise BadSearch(f"--attainment: {options.attainment:g} is no share above 0 and up to 1, such as 0.95")
    configuration = read(options.file, options.set)
    if not configuration.promises:
        keys = "slo.ttft_ms, slo.tpot_ms and slo.latency_ms"
        raise BadSearch(f"{options.file} promises nothing: give one of the keys {keys}")
    size = size_of(configuration, options.of)

    def made(count: int) -> SearchCandidate:
        changes = size.changes(count)
        return SearchCandidate(count, changes, varied(options.file, options.set, changes))

    start = options.start or size.start
    if start < size.floor:
        raise BadSearch(f"--start is {start}: it is {size.floor} at least, one of each kind")
    made(start)
    found = Capacity(size, options.attainment, made, lambda asked: [], _TIMES * start, options.replications)
    found.precision, found.told = options.precision, note
    return found, start


CAPACITY = SimulatorCommand(
    "capacity",
    "FILE [--of KEY] [FLAGS]",
    "Finds the most drafters, users or requests, or the least verifiers, with which a fleet keeps its promise.",
    _run,
    _add_arguments,
    (
        "specpair simulator capacity fleet.yaml",
        "specpair simulator capacity fleet.yaml --of devices.verifiers.big.count --attainment 0.99",
        "specpair simulator capacity fleet.yaml --of workload.rate_rps --set slo.ttft_ms=1500",
    ),
)
