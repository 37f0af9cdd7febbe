"""The flags of `drafter bench`, and which of them go together."""

import argparse
from collections.abc import Sequence

from drafter_client.cli import flags
from lab.bench.options import BenchOptions
from specpair.command_line.options import add_options, flag_reader, given, option_of
from specpair.command_line.parser import Parser, Switch

_GROUPS = ("sides", "cases", "measuring", "output")


def bench_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `python -m drafter_client bench`; `bench` of the result are the `BenchOptions`. Exits with
    status 2 for flags that do not go together."""
    parser = bench_parser()
    options = parser.parse(arguments)
    options.bench = BenchOptions(**given(BenchOptions, options))
    if options.resume is not None:
        defaults = bench_parser().parse([])
        other = next(
            (name for name in vars(defaults) if getattr(options, name) != getattr(defaults, name) and name != "resume"),
            None,
        )
        if other is not None:
            parser.error(f"--resume: the run in {options.resume} has its own --{other.replace('_', '-')}, leave it out")
    return options


def bench_parser() -> Parser:
    """The parser of `python -m drafter_client bench`."""
    parser = Parser(
        "drafter bench",
        usage="[FLAGS]",
        description="Measure endpoints of OpenAI's API side by side, by named cases of load: times to first token and "
        "between tokens, tokens a second, and what speculation gained.",
        examples=(
            "drafter bench --list",
            "drafter bench --modes http://127.0.0.1:8080",
            "drafter bench --side pair=http://127.0.0.1:8080/v1 --side vllm=http://bigbox:8000/v1 --case code",
            "drafter bench --resume bench-20260131-120000",
        ),
    )
    for title in _GROUPS:
        group = parser.add_argument_group(title)
        add_options(group, BenchOptions)
        if title == "cases":
            group.add_argument("--list", action=Switch, help="list the cases, and exit")
        if title == "output":
            group.add_argument("--resume", type=flags.path, metavar="DIR", help="go on with the run in this folder")
    for action in parser.actions():
        option = option_of(action)
        if option is not None and not isinstance(action, Switch):
            action.type = flag_reader(option)  # none of them is a variable or a key of a file, whose layer reads it
    return parser
