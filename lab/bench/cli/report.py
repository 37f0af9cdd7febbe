"""`drafter bench report` and `drafter bench compare`: what is made of the records of runs."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from drafter_client.cli import flags
from lab.bench.cli.output import standard_output
from lab.bench.push import cloudwatch, pushgateway
from lab.bench.record_files import read_results
from lab.bench.records import Results
from lab.bench.report.files import write_picture, write_reports
from lab.bench.report.terminal import show
from lab.bench.statistics.analysis import analyse
from lab.bench.statistics.merging import merged
from lab.reports.figures import NoPicture
from specpair.command_line.parser import Parser
from specpair.numbers import counted


def run_bench_report(arguments: Sequence[str]) -> int:
    """`drafter bench report DIR`. Returns the exit status. Raises BadBench, NoPicture."""
    options = report_parser().parse(arguments)
    results = read_results(options.folder)
    _report(results, options, options.folder)
    if options.pushgateway is not None:
        count = pushgateway.push_to_gateway(analyse(results, options.baseline), options.pushgateway)
        _note(f"{count} series are at {options.pushgateway}")
    if options.cloudwatch is not None:
        count = cloudwatch.put(results, options.cloudwatch)
        _note(f"{counted(count, 'metric')} are in CloudWatch's namespace {options.cloudwatch}")
    return 0


def run_bench_compare(arguments: Sequence[str]) -> int:
    """`drafter bench compare DIR DIR`. Returns the exit status. Raises BadBench, NoPicture."""
    parser = compare_parser()
    options = parser.parse(arguments)
    folders: list[Path] = [options.first, options.second]
    names = [folder.resolve().name for folder in folders]
    if names[0] == names[1]:
        names = ["a", "b"]
    _report(merged([*zip(names, map(read_results, folders), strict=True)]), options, options.output)
    return 0


def _report(results: Results, options: argparse.Namespace, folder: Path | None) -> None:
    """Show the figures, and write the files to `folder`. Without the package for it there is no picture."""
    analysis = analyse(results, options.baseline)
    show(analysis, standard_output())
    if folder is None:
        return
    for path in write_reports(analysis, results, folder)[:1]:
        _note(f"the report is in {path}, its figures beside it")
    if options.no_png:
        return
    try:
        _note(f"drawn to {write_picture(analysis, folder)}")
    except NoPicture as missing:
        _note(str(missing))


def _note(said: str) -> None:
    print(f"drafter: {said}", file=sys.stderr)


def report_parser() -> Parser:
    """The parser of `python -m drafter_client bench report`."""
    parser = Parser(
        "drafter bench report",
        usage="[FLAGS] DIR",
        description="Make the figures of a run of 'drafter bench' again: in the terminal, and as report.html, "
        "report.md, report.png, CSV, JSON and LLMPerf's files beside its records.",
        examples=(
            "drafter bench report bench-20260131-120000",
            "drafter bench report bench-20260131-120000 --baseline vllm --no-png",
            "drafter bench report bench-20260131-120000 --pushgateway http://127.0.0.1:9091",
        ),
    )
    runs = parser.add_argument_group("run")
    runs.add_argument("folder", type=flags.path, metavar="DIR", help="the folder of the run")
    _shared(parser)
    push = parser.add_argument_group("push")
    push.add_argument("--pushgateway", metavar="URL", help="push the figures there, for Prometheus")
    push.add_argument("--cloudwatch", metavar="NAMESPACE", help="put the medians into this namespace of CloudWatch")
    return parser


def compare_parser() -> Parser:
    """The parser of `python -m drafter_client bench compare`."""
    parser = Parser(
        "drafter bench compare",
        usage="[FLAGS] DIR DIR",
        description="Compare the sides of two runs of 'drafter bench' in the cases that both have.",
        examples=("drafter bench compare before after", "drafter bench compare before after --output compared"),
    )
    runs = parser.add_argument_group("runs")
    runs.add_argument(
        "first", type=flags.path, metavar="DIR", help="the folder of a run, whose first side is the baseline"
    )
    runs.add_argument("second", type=flags.path, metavar="DIR", help="the folder of another run")
    _shared(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--output", type=flags.path, metavar="DIR", help="write the report to this folder, too")
    return parser


def _shared(parser: Parser) -> None:
    shown = parser.add_argument_group("comparison")
    shown.add_argument("--baseline", metavar="SIDE", help="the side that others are compared with (default: the first)")
    shown.add_argument("--no-png", action="store_true", help="no picture, which needs matplotlib")
