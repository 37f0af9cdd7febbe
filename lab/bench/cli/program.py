"""The command `drafter bench`, with `report` and `compare` below it, as the lab's entry point names it."""

from collections.abc import Sequence

from lab.bench.cli.command import run_bench
from lab.bench.cli.command_line import bench_options, bench_parser
from lab.bench.cli.report import compare_parser, report_parser, run_bench_compare, run_bench_report
from specpair.command_line.parser import Parsers

_BELOW = {"report": run_bench_report, "compare": run_bench_compare}
PARSERS: Parsers = {
    "drafter bench": bench_parser,
    "drafter bench report": report_parser,
    "drafter bench compare": compare_parser,
}


def run(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status. Exits with status 2 for bad flags. Raises DrafterError."""
    below = _BELOW.get(arguments[0]) if arguments else None
    return run_bench(bench_options(arguments)) if below is None else below(arguments[1:])
