"""The flags of `drafter bench`, and the checks of flags that must go together."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafter_client.cli import flags
from specpair.command_line.options import add_options, flag_reader, option_of, option_values
from specpair.command_line.parser import Parser, Switch
from specpair.options.option import option


def _several(words: str, placeholder: str, group: str = "sides", item: type = str) -> Any:
    """An option that may be given more than once."""
    return option((), words, item=item, items=tuple, group=group, placeholder=placeholder)


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Flags of `drafter bench` are made from these fields, in groups of the help."""

    case: tuple[str, ...] = _several("name of a case, or aws-* for all that begin so (default: all)", "NAME", "cases")
    cases: tuple[Path, ...] = _several("file or folder of cases of your own", "PATH", "cases", Path)
    requests: int | None = option(None, "requests in a repetition, instead of the case's number", ge=1, group="cases")
    clients: int | None = option(None, "requests at once, instead of the case's number", ge=1, group="cases")
    output_tokens: int | None = option(
        None, "maximum number of tokens of a text, instead of the case's number", ge=1, group="cases"
    )
    side: tuple[str, ...] = _several("an endpoint of OpenAI's API, under a name", "NAME=URL")
    modes: tuple[str, ...] = _several("a drafter's or verifier's endpoint: each of its modes is a side", "URL")
    model: tuple[str, ...] = _several("model to ask for (default: the first that the endpoint lists)", "[NAME=]MODEL")
    key: tuple[str, ...] = _several("environment variable that holds the endpoint's API key", "[NAME=]VARIABLE")
    price: tuple[str, ...] = _several("price of an hour of the endpoint's machines; 0: not known", "[NAME=]PRICE")
    extra: tuple[str, ...] = _several("object to add to the body of each request", "[NAME=]JSON")
    repetitions: int = option(3, "how often each case runs", ge=1, le=1000, group="measuring")
    warm_up: int = option(1, "requests before the measurement that do not count", ge=0, le=1000, group="measuring")
    seed: int = option(0, "seed of the texts and of random arrivals", ge=0, lt=2**53, group="measuring")
    timeout: float = option(
        600.0, "how long a response may be silent", gt=0, le=86400, group="measuring", placeholder="SECONDS"
    )
    output: Path | None = option(
        None,
        "folder for the results; a run in this folder is resumed",
        usually="bench-DATE",
        group="output",
        placeholder="DIR",
    )
    texts: bool = option(True, "keep the texts; their hashes are kept in any case", group="output")


_GROUPS = ("sides", "cases", "measuring", "output")


def bench_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `python -m drafter_client bench`; `bench` of the result are the `BenchOptions`. Exits with
    status 2 for flags that do not go together."""
    parser = bench_parser()
    options = parser.parse(arguments)
    options.bench = BenchOptions(**option_values(BenchOptions, options))
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
            group.add_argument("--resume", type=flags.path, metavar="DIR", help="resume the run in this folder")
    for action in parser.actions():
        option = option_of(action)
        if option is not None and not isinstance(action, Switch):
            action.type = flag_reader(option)  # none of them is a variable or a key of a file, whose layer reads it
    return parser


def report_parser() -> Parser:
    """The parser of `python -m drafter_client bench report`."""
    parser = Parser(
        "drafter bench report",
        usage="[FLAGS] DIR",
        description="Show the metrics of a run of 'drafter bench' again: in the terminal, and as report.html and "
        "analysis.json in the run's folder.",
        examples=(
            "drafter bench report bench-20260131-120000",
            "drafter bench report bench-20260131-120000 --baseline vllm",
        ),
    )
    runs = parser.add_argument_group("run")
    runs.add_argument("folder", type=flags.path, metavar="DIR", help="the folder of the run")
    shown = parser.add_argument_group("comparison")
    shown.add_argument("--baseline", metavar="SIDE", help="the side to compare the others with (default: the first)")
    return parser
