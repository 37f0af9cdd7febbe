"""The command `capacity`: finds how much load a fleet carries within its promise."""

import argparse
from pathlib import Path

from lab.simulator.commands.command import (
    INTERRUPTED,
    SimulatorCommand,
    add_jobs,
    add_set,
    add_tried,
    complain,
    note,
    tell_tried,
    whole,
)
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.reading import read
from lab.simulator.results.replications import evaluate, processes
from lab.simulator.search.candidates import BadSearch, SearchCandidate, varied
from lab.simulator.search.capacity import Bound, Capacity
from lab.simulator.search.size import size_of
from specpair.command_line.parser import Parser

_ATTAINMENT = 0.95
_TIMES = 64  # the greatest count that is tried, in terms of the first


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a configuration")
    add_set(parser)
    size = parser.add_argument_group("what is counted")
    size.add_argument(
        "--of",
        metavar="KEY",
        help="a key with a whole number, such as devices.drafters.laptop.count, or workload.rate_rps. With drafters "
        "the load grows: rate_rps or users in proportion, since each device brings its share. Of keys of verifiers the "
        "least that holds is found, of all others the most (default: drafters of all kinds, in the file's proportions)",
    )
    size.add_argument("--step", type=float, metavar="X", help="step of rate_rps (default: a twentieth of the file's)")
    size.add_argument("--start", type=whole, metavar="N", help="the count that is tried first (default: the file's)")
    size.add_argument(
        "--up-to", type=whole, metavar="N", help=f"the greatest count (default: {_TIMES} times the first)"
    )
    promise = parser.add_argument_group("promise")
    promise.add_argument(
        "--attainment",
        type=float,
        metavar="SHARE",
        help=f"least share of requests within slo (default: {_ATTAINMENT}; with --bound: any)",
    )
    promise.add_argument(
        "--bound",
        action="append",
        default=[],
        metavar="MEASURE<=X",
        help="bound of a measure, such as 'ttft_p95_ms<=1500' or 'throughput_tps>=500'; may be given more than once",
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
    add_tried(parser.add_argument_group("output"))


def _run(options: argparse.Namespace) -> int:
    capacity, start = _prepared(options)
    ended = False
    try:
        with processes(options.jobs, evaluate) as capacity.evaluate:
            capacity.find(start)
        ended = True
    except KeyboardInterrupt:
        pass
    finally:
        if capacity.trials:
            tell_tried(options, [*capacity.sentences(ended)], capacity.table(), capacity.rows())
    if not ended:
        complain("interrupted" if capacity.trials else "interrupted before the first count was tried")
        return INTERRUPTED
    return 0


def _prepared(options: argparse.Namespace) -> tuple[Capacity, int]:
    """Raises BadSearch and others of ERRORS for what makes no sense, before anything runs."""
    if options.precision < 0:
        raise BadSearch("--precision is 0 or more")
    configuration = read(options.file, options.set)
    bounds = _bounds(options, configuration)
    size = size_of(configuration, options.of, options.step)

    def made(count: int) -> SearchCandidate:
        changes = size.changes(count)
        return SearchCandidate(count, changes, varied(options.file, options.set, changes))

    start = options.start or size.start
    up_to = options.up_to or max(_TIMES * start, size.floor)
    if not size.floor <= start <= up_to:
        raise BadSearch(f"--start is {start}: it lies between {size.floor} and --up-to, {up_to}")
    made(start)
    found = Capacity(size, bounds, made, lambda asked: [], up_to, options.replications, options.precision, note)
    return found, start


def _bounds(options: argparse.Namespace, configuration: Configuration) -> tuple[Bound, ...]:
    bounds = tuple(map(Bound.parse, options.bound))
    if options.attainment is None and bounds:
        return bounds
    if not configuration.promises:
        raise BadSearch(
            f"{options.file} promises nothing: give one of the keys slo.ttft_ms, slo.tpot_ms and slo.latency_ms, or a "
            "bound such as --bound 'ttft_p95_ms<=1500'"
        )
    return (Bound.attainment(_ATTAINMENT if options.attainment is None else options.attainment), *bounds)


CAPACITY = SimulatorCommand(
    "capacity",
    "FILE [--of KEY] [FLAGS]",
    "Finds the most drafters, users or requests, or the least verifiers, with which a fleet keeps its promise.",
    _run,
    _add_arguments,
    (
        "specpair simulator capacity fleet.yaml",
        "specpair simulator capacity fleet.yaml --of devices.verifiers.big.count --attainment 0.99",
        "specpair simulator capacity fleet.yaml --of workload.rate_rps --bound 'ttft_p95_ms<=1500'",
    ),
)
