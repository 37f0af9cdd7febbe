"""The command `search`: compares configurations that differ in some keys."""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

from lab.simulator.commands.command import ERRORS, INTERRUPTED, Command, complain
from lab.simulator.commands.flags import add_jobs, add_set
from lab.simulator.commands.output import note, standard_output
from lab.simulator.search.evaluation import evaluation
from lab.simulator.search.halving import check_budget, halve
from lab.simulator.search.outcomes import Goals, Outcome
from lab.simulator.search.page import page, pairs
from lab.simulator.search.pareto import heading, is_on_front, ordered, rows, table
from lab.simulator.search.search_file import SearchKeys, checked, read_search
from lab.simulator.search.space import BadSearch, Candidate, Space, candidates, parse_vary
from lab.simulator.search.terminal_plot import plotted
from specpair.command_line.parser import Parser, Switch
from specpair.command_line.table import print_table


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
    parser.add_argument("--grid", action=Switch, default=None, help="run all candidates to the end, without halving")
    parser.add_argument("--first", type=int, metavar="N", help="replications of each in the first round (default: 3)")
    parser.add_argument("--most", type=int, metavar="N", help="replications of a candidate, at most (default: 12)")
    parser.add_argument("--budget", type=int, metavar="N", help="replications of all together, at most (default: any)")
    parser.add_argument("--skip-invalid", action=Switch, default=None, help="leave combinations out that cannot run")
    add_jobs(parser)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all measures of all candidates")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write a page with plots and the table, as HTML")


def _run(options: argparse.Namespace) -> int:
    try:
        keys = _keys(options)
        goals = Goals.of(keys.objectives, keys.attainment)
        found = _candidates(options, keys)
        first = keys.most if keys.method == "grid" else keys.first
        check_budget(len(found), first, keys.most, keys.budget)
        outcomes, interrupted = [Outcome(each) for each in found], False
        try:
            with evaluation(options.jobs) as evaluate:
                halve(outcomes, goals, evaluate, first, keys.most, keys.budget, note)
        except KeyboardInterrupt:
            interrupted = True
        begun = [each for each in outcomes if each.replications]
        if begun:
            _write(options, keys, begun, goals)
    except ERRORS as error:
        return complain(error)
    except OSError as error:
        return complain(f"{error.filename} cannot be written: {error.strerror}")
    if interrupted:
        complain("interrupted: this is what came before" if begun else "interrupted before the first replication ended")
        return INTERRUPTED
    return 0


def _keys(options: argparse.Namespace) -> SearchKeys:
    """The search in the file, with what flags replace. Raises BadSearch."""
    keys = SearchKeys() if options.search is None else read_search(options.search)
    given = {name: getattr(options, name) for name in ("attainment", "first", "most", "budget", "skip_invalid")}
    given["method"] = None if options.grid is None else "grid" if options.grid else "halving"
    given["objectives"] = options.objectives and options.objectives.split(",")
    changes = {name: value for name, value in given.items() if value is not None}
    varied = dict(map(parse_vary, options.vary))
    return checked({**keys.model_dump(), **changes, "space": {**keys.space, **varied}}, "the flags")


def _candidates(options: argparse.Namespace, keys: SearchKeys) -> list[Candidate]:
    """Raises BadSearch after it has named each combination that cannot run, unless these are left out."""
    found, complaints = candidates(Space(keys.space, keys.variants), options.file, options.set)
    for each in complaints:
        note(f"{'left out' if keys.skip_invalid else 'cannot run'}: {each}")
    if complaints and not keys.skip_invalid:
        some = f"{len(complaints)} of {len(found) + len(complaints)} combinations"
        raise BadSearch(f"{some} cannot run: change the values, or leave these out with --skip-invalid")
    if not found:
        raise BadSearch("no combination can run")
    return found


def _write(options: argparse.Namespace, keys: SearchKeys, outcomes: Sequence[Outcome], goals: Goals) -> None:
    print_table(table(outcomes, goals), standard_output())
    across, up = pairs(goals)[0]
    if across is not up:
        points = [
            (each.estimate(across.name).mean, each.estimate(up.name).mean, _mark(each, outcomes, goals))
            for each in ordered(outcomes, goals)
        ]
        print(*plotted(points, heading(across), heading(up)), sep="\n")
        print("A number in brackets: no other candidate is better.")
    if options.csv is not None:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows(outcomes, goals))
    if options.page is not None:
        options.page.write_text(
            page(f"Search: {options.file.name}", _said(keys, outcomes), outcomes, goals), encoding="utf-8"
        )


def _mark(outcome: Outcome, outcomes: Sequence[Outcome], goals: Goals) -> str:
    number = str(outcome.candidate.number)
    return f"[{number}]" if is_on_front(outcome, outcomes, goals) else number


def _said(keys: SearchKeys, outcomes: Sequence[Outcome]) -> list[str]:
    spent = sum(len(each.replications) for each in outcomes)
    how = "in a grid" if keys.method == "grid" else "by successive halving with common random numbers"
    said = [f"{len(outcomes)} candidates, {spent} replications {how}; intervals are 95 %."]
    if keys.attainment is not None:
        said.append(f"Candidates keep the service levels for {100 * keys.attainment:g} % of requests.")
    return said


SEARCH = Command(
    "search",
    "FILE [--search FILE] [--vary KEY=VALUE,VALUE] [FLAGS]",
    "Compares configurations that differ in some keys, and shows which are worth having.",
    _run,
    _add_arguments,
    (
        "specpair simulator search fleet.yaml --vary router=jsq,wjsq2 --vary gamma=2,4,8",
        "specpair simulator search fleet.yaml --search search.yaml --page search.html",
    ),
)
