"""The command `capacity`: finds how much load a fleet carries within its promise."""

import argparse
import csv
from pathlib import Path

from lab.simulator.capacity.answer import rows, sentences, table
from lab.simulator.capacity.bisection import Range, bisect
from lab.simulator.capacity.page import page
from lab.simulator.capacity.picture import draw
from lab.simulator.capacity.promise import Bound, attainment, parse_bound
from lab.simulator.capacity.size import size_of
from lab.simulator.capacity.trials import Trials, check_replications
from lab.simulator.commands.command import ERRORS, INTERRUPTED, Command, complain
from lab.simulator.commands.flags import add_jobs, add_set, whole
from lab.simulator.commands.output import note, standard_output
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.reading import read
from lab.simulator.running.setting import setting_of
from lab.simulator.search.evaluation import evaluation
from lab.simulator.search.space import BadSearch, Candidate, written
from specpair.command_line.parser import Parser
from specpair.command_line.table import print_table
from specpair.protocol.terminal_text import one_line

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
        "--first", type=whole, default=3, metavar="N", help="replications of a count (default: %(default)s)"
    )
    effort.add_argument(
        "--most",
        type=whole,
        default=6,
        metavar="N",
        help="replications of a count whose interval covers what is asked, at most (default: %(default)s)",
    )
    effort.add_argument(
        "--precision",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="how far apart the last two counts may be; 0: by 1 (default: %(default)s)",
    )
    effort.add_argument(
        "--checks",
        type=int,
        default=1,
        metavar="N",
        help="further counts that should hold and are tried in the end (default: %(default)s)",
    )
    add_jobs(effort)
    output = parser.add_argument_group("output")
    output.add_argument("--csv", type=Path, metavar="FILE", help="write all measures of all counts")
    output.add_argument("--page", type=Path, metavar="FILE", help="write a page with curves and the table, as HTML")
    output.add_argument(
        "--png", type=Path, metavar="FILE", help="write the curves as a picture, which needs matplotlib"
    )


def _run(options: argparse.Namespace) -> int:
    try:
        trials, configuration, within = _prepared(options)
        failed: Exception | None = None
        ended = True
        try:
            with evaluation(options.jobs) as trials.evaluate:
                bisect(trials.holds, within, options.checks)
        except ERRORS as error:
            failed = error
        except KeyboardInterrupt:
            ended = False
        if trials.by_count:
            said = sentences(trials, configuration.slo, within.ceiling, ended and failed is None)
            _write(options, trials, said)
    except ERRORS as error:
        return complain(error)
    except OSError as error:
        return complain(f"{error.filename} cannot be written: {error.strerror}")
    if failed is not None:
        return complain(failed)
    if not ended:
        complain("interrupted" if trials.by_count else "interrupted before the first count was tried")
        return INTERRUPTED
    return 0


def _prepared(options: argparse.Namespace) -> tuple[Trials, Configuration, Range]:
    """Raises BadSearch and others of ERRORS for what makes no sense, before anything runs."""
    check_replications(options.first, options.most)
    if options.precision < 0 or options.checks < 0:
        raise BadSearch("--precision and --checks are 0 or more")
    configuration = read(options.file, options.set)
    bounds = _bounds(options, configuration)
    size = size_of(configuration, options.of, options.step)

    def made(count: int) -> Candidate:
        changes = size.changes(count)
        found = read(options.file, [*options.set, *written(changes)])
        setting_of(found, seed=0)
        return Candidate(count, changes, found)

    start = options.start or size.start
    ceiling = options.up_to or max(_TIMES * start, size.floor)
    if not size.floor <= start <= ceiling:
        raise BadSearch(f"--start is {start}: it lies between {size.floor} and --up-to, {ceiling}")
    made(start)
    within = Range(start, size.floor, ceiling, size.wanted, options.precision)
    trials = Trials(size, made, bounds, lambda asked: [], options.first, options.most, note)
    return trials, configuration, within


def _bounds(options: argparse.Namespace, configuration: Configuration) -> list[Bound]:
    bounds = [parse_bound(each) for each in options.bound]
    if options.attainment is None and bounds:
        return bounds
    if not configuration.promises:
        raise BadSearch(
            f"{options.file} promises nothing: give one of the keys slo.ttft_ms, slo.tpot_ms and slo.latency_ms, or a "
            "bound such as --bound 'ttft_p95_ms<=1500'"
        )
    return [attainment(_ATTAINMENT if options.attainment is None else options.attainment), *bounds]


def _write(options: argparse.Namespace, trials: Trials, said: list[str]) -> None:
    title = f"Capacity: {options.file.name}"
    out = standard_output()
    print_table(table(trials), out)
    for each in said:
        out.print(one_line(each), soft_wrap=True)
    if options.csv is not None:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows(trials))
    if options.page is not None:
        options.page.write_text(page(title, said, trials), encoding="utf-8")
    if options.png is not None:
        draw(title, trials, options.png)


CAPACITY = Command(
    "capacity",
    "FILE [--of KEY] [FLAGS]",
    "Finds the most drafters, users or requests, or the least verifiers, with which a fleet keeps its promise.",
    _run,
    _add_arguments,
    (
        "specpair simulator capacity fleet.yaml --page capacity.html",
        "specpair simulator capacity fleet.yaml --of devices.verifiers.big.count --attainment 0.99",
        "specpair simulator capacity fleet.yaml --of workload.rate_rps --bound 'ttft_p95_ms<=1500'",
    ),
)
