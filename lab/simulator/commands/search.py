"""The command `search`: compares configurations that differ in some keys."""

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
)
from lab.simulator.results.replications import evaluate, processes
from lab.simulator.search.candidates import (
    BadSearch,
    SearchCandidate,
    SearchKeys,
    candidates,
    checked,
    parse_vary,
    read_search,
)
from lab.simulator.search.outcomes import CandidateOutcome, Goals, rows, run, table
from specpair.command_line.parser import Parser, Switch


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the configuration that is varied")
    parser.add_argument("--search", type=Path, metavar="FILE", help="a file of a search; flags replace its keys")
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="KEY=VALUE,VALUE",
        help="values that a key may have, such as devices.drafters[laptop].count=10,20; can be given several times",
    )
    add_set(parser)
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
    parser.add_argument("--skip-invalid", action=Switch, default=None, help="leave combinations out that cannot run")
    add_jobs(parser)
    add_tried(parser)


def _run(options: argparse.Namespace) -> int:
    keys = _keys(options)
    goals = Goals.of(keys.objectives, keys.attainment)
    outcomes, interrupted = [CandidateOutcome(each) for each in _candidates(options, keys)], False
    try:
        with processes(options.jobs, evaluate) as evaluate_all:
            run(outcomes, keys.replications, evaluate_all)
    except KeyboardInterrupt:
        interrupted = True
    begun = [each for each in outcomes if each.replications]
    if begun:
        said = f"{len(begun)} candidates under the same loads; intervals are 95 %."
        tell_tried(options, [said], table(begun, goals), rows(begun, goals))
    if interrupted:
        complain("interrupted: this is what came before" if begun else "interrupted before the first replication ended")
        return INTERRUPTED
    return 0


def _keys(options: argparse.Namespace) -> SearchKeys:
    """The search in the file, with what flags replace. Raises BadSearch."""
    keys = SearchKeys() if options.search is None else read_search(options.search)
    given = {name: getattr(options, name) for name in ("attainment", "replications", "skip_invalid")}
    given["objectives"] = options.objectives and options.objectives.split(",")
    changes = {name: value for name, value in given.items() if value is not None}
    varied = dict(map(parse_vary, options.vary))
    return checked({**keys.model_dump(), **changes, "space": {**keys.space, **varied}}, "the flags")


def _candidates(options: argparse.Namespace, keys: SearchKeys) -> list[SearchCandidate]:
    """Raises BadSearch after it has named each combination that cannot run, unless these are left out."""
    found, complaints = candidates(keys, options.file, options.set)
    for each in complaints:
        note(f"{'left out' if keys.skip_invalid else 'cannot run'}: {each}")
    if complaints and not keys.skip_invalid:
        some = f"{len(complaints)} of {len(found) + len(complaints)} combinations"
        raise BadSearch(f"{some} cannot run: change the values, or leave these out with --skip-invalid")
    if not found:
        raise BadSearch("no combination can run")
    return found


SEARCH = SimulatorCommand(
    "search",
    "FILE [--search FILE] [--vary KEY=VALUE,VALUE] [FLAGS]",
    "Compares configurations that differ in some keys, and shows which are worth having.",
    _run,
    _add_arguments,
    (
        "specpair simulator search fleet.yaml --vary router=jsq,wjsq2 --vary gamma=2,4,8",
        "specpair simulator search fleet.yaml --search search.yaml --csv search.csv",
    ),
)
