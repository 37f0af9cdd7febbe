"""Command lines of the drafter: which flags each command has, and which of them go together."""

import argparse
import os
import sys
from collections.abc import Sequence

from backends.registry import SHOWN
from command_line.environment import UnknownVariable, variables
from command_line.parser import OneOf, Parser
from drafter_client.cli import flag_values, flags
from drafter_client.options import Mode
from speculation.acceptance.strategies import Strategy

# Flags of the engine here, and of a draft model that it runs.
_OF_AN_ENGINE = ("--context", "--threads", "--gpu-layers", "--device", "--dtype", "--compile", "--tensor-parallel")
_OF_A_MODEL = ("--draft-model", *_OF_AN_ENGINE, "--translate", "--no-lookup")
COMMANDS = ("solo", "compare", "report")
SOLO = ("target", "draft", "server")  # the models that 'drafter solo' can run
_VARIABLES = ("API_KEY",)  # without `flags.PREFIX`
_HERE, _THERE = ("--model", "--backend", *_OF_AN_ENGINE), ("--verifier", "--api-key", "--patience")
_OF_DRAFTING = (*_OF_A_MODEL, "--backend", "--branches", "--lockstep")
_OF_MANY = ("--concurrency", "--output")
_PREDICTION = ("--prediction", "--prediction-file")
_LEAVE = ", leave one of the two out"


def drafter_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `python -m drafter_client`. Exits with status 2 for flags that do not go together."""
    parser = drafter_parser()
    options = _parsed(parser, arguments)
    options.mode, options.strategy = Mode(options.mode), Strategy(options.strategy)
    _check_strategy(parser, options)
    if options.mode is not Mode.AUTO and not options.remember:
        parser.error(f"--no-remember: only --mode auto remembers, leave it out with --mode {options.mode}")
    if options.mode in (Mode.FUSED, Mode.TARGET):
        _refuse(parser, options, _OF_DRAFTING, f"with --mode {options.mode} nothing drafts here{_LEAVE}")
        if options.mode is Mode.TARGET:
            _refuse(parser, options, ["--draft-n", *_PREDICTION], f"with --mode {options.mode} nothing drafts{_LEAVE}")
    else:
        _check_lookup(parser, options)
    if options.prompt_file is None:
        _refuse(parser, options, _OF_MANY, "is for many prompts, give them with --prompt-file")
    else:
        _refuse(
            parser, options, _PREDICTION, "is of one text: give it with --prompt, or in the lines of a *.jsonl file"
        )
        _refuse(parser, options, ["--baseline"], "is measured beside one text, compare many with 'drafter compare'")
        if options.output is not None:
            _refuse(parser, options, ["--json"], f"--output writes the same lines{_LEAVE}")
        _refuse(parser, options, ["--verbose"], "shows the decisions on one text, give it with --prompt")
    return options


def compare_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `python -m drafter_client compare`. Exits with status 2 for flags that do not go together."""
    parser = compare_parser()
    options = _parsed(parser, arguments)
    _check_lookup(parser, options)
    if options.png is not None and options.no_png:
        parser.error("--png: --no-png says the contrary, leave one of the two out")
    options.mode, options.strategy = Mode.AUTO, Strategy.COUPLED
    return options


def report_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `python -m drafter_client report`. Exits with status 2 for flags that do not go together."""
    return report_parser().parse(arguments)


def _parsed(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags; the API key comes from the environment where no flag gives one."""
    options = parser.parse(arguments)
    try:
        found = variables(flags.PREFIX, _VARIABLES, os.environ)
    except UnknownVariable as error:
        parser.error(str(error))
    for name in found.unknown:
        print(f"drafter: {name}: nothing reads this variable, and it is ignored", file=sys.stderr)
    key = found.values.get("API_KEY")
    parser.set_defaults(api_key=key)  # so that `_refuse` does not take it for a flag
    options.api_key = key if options.api_key is None else options.api_key
    return options


def _check_strategy(parser: Parser, options: argparse.Namespace) -> None:
    lossy = options.strategy is Strategy.THRESHOLD
    if lossy and options.threshold is None:
        parser.error(
            "--strategy threshold: give the probability above which a draft token is accepted, with --threshold"
        )
    if not lossy and options.threshold is not None:
        parser.error(f"--threshold: --strategy {options.strategy} has none, leave one of the two out")
    if options.strategy is Strategy.GREEDY:
        _refuse(parser, options, _PREDICTION, f"--strategy {options.strategy} accepts no draft tokens{_LEAVE}")
    if options.translate and options.strategy.draws:
        parser.error("--translate: translated drafts have no distribution, which --strategy probabilistic needs")


def _check_lookup(parser: Parser, options: argparse.Namespace) -> None:
    if options.backend == flags.NGRAM:
        _refuse(parser, options, _OF_A_MODEL, f"--backend ngram drafts without a model{_LEAVE}")


def with_flag(message: str) -> str:
    """An engine's message that begins with the name of an option, with the flag in its place."""
    for flag in _OF_AN_ENGINE:
        name = flag[2:].replace("-", "_")
        if message.startswith((f"{name}:", f"{name} ")):
            return flag + message.removeprefix(name)
    return message


def _refuse(parser: Parser, options: argparse.Namespace, which: Sequence[str], reason: str) -> None:
    """End with an error that gives `reason` if one of the flags `which` has another value than its default."""
    for flag in which:
        name = "lookup" if flag == "--no-lookup" else flag[2:].replace("-", "_")
        if getattr(options, name) != parser.get_default(name):
            parser.error(f"{flag}: {reason}")


def drafter_parser() -> Parser:
    """The parser of `python -m drafter_client`."""
    parser = Parser(
        "drafter",
        usage="[FLAGS] --prompt TEXT\n[FLAGS] < FILE\nsolo | compare | report DIR   (each has its own --help)",
        description="Generate text with a verifier: a small model here drafts, the large one there decides. 'solo' "
        "runs one model alone, 'compare' tries every mode, 'report' shows what --profile recorded.",
        examples=(
            'drafter --verifier http://bigbox:8000 --prompt "def main():" --stats',
            'drafter --draft-model llama-1b.gguf --chat --prompt "Why is the sky blue?"',
            "drafter --prompt-file prompts.txt --concurrency 4 --output results.jsonl",
        ),
        commands=COMMANDS,
    )
    flags.text_flags(parser, many=True)
    flags.verifier_flags(parser)
    flags.draft_flags(parser, modes=True)
    flags.sampling_flags(parser)
    flags.strategy_flags(parser)
    output = flags.output_flags(parser)
    output.add_argument("--baseline", action="store_true", help="measure the target alone on the same prompt, too")
    output.add_argument("--verbose", action="store_true", help="show the decision on each token")
    flags.profile_flag(output)
    return parser


def solo_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the flags of `python -m drafter_client solo`. Exits with status 2 for flags that do not go together."""
    parser = solo_parser()
    options = _parsed(parser, arguments)
    there = options.which == "server"
    where = "the model runs on the verifier" if there else "the model runs here, 'solo server' asks a verifier"
    _refuse(parser, options, _HERE if there else _THERE, f"with 'solo {options.which}' {where}")
    if options.model is not None and options.which == "draft":
        parser.error("--model: 'solo draft' is the shipped draft model, leave one of the two out")
    return options


def solo_parser() -> Parser:
    """The parser of `python -m drafter_client solo`."""
    parser = Parser(
        "drafter solo",
        usage="[target | draft | server] [FLAGS] --prompt TEXT",
        description="Run one model alone, token by token, with the time of each token.",
        examples=(
            'drafter solo --prompt "import os" --max-tokens 20',
            'drafter solo --model llama-1b.gguf --threads 4 --prompt "import os"',
            'drafter solo server --verifier http://bigbox:8000 --prompt "import os"',
        ),
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "which",
        nargs="?",
        choices=OneOf(SOLO),
        default=SOLO[0],
        help="target, draft: the shipped model, on this machine; server: the verifier's target (default: %(default)s)",
    )
    model.add_argument("--model", type=flag_values.path, metavar="PATH", help="another model, on this machine")
    flags.text_flags(parser)
    flags.verifier_flags(parser)
    flags.engine_flags(parser.add_argument_group("engine"), SHOWN, "engine (default: %(default)s)")
    flags.sampling_flags(parser)
    flags.output_flags(parser)
    return parser


def compare_parser() -> Parser:
    """The parser of `python -m drafter_client compare`."""
    parser = Parser(
        "drafter compare",
        usage="[FLAGS]",
        description="Write the same texts in every mode there is, by turns, and say which is the fastest here.",
        examples=(
            "drafter compare --verifier http://bigbox:8000",
            "drafter compare --draft-model llama-1b.gguf --lengths 2,4,8 --runs 1",
            "drafter compare --prompt-file code.txt --prompt-file chat.jsonl --json",
        ),
    )
    texts = parser.add_argument_group("texts")
    texts.add_argument(
        "--prompt-file",
        type=flag_values.path,
        metavar="FILE",
        action="append",
        help="prompts, one a line or JSON Lines; a kind of its own each time it is given (default: the two that ship)",
    )
    texts.add_argument(
        "--runs",
        metavar="N",
        type=flag_values.whole(1, 1000),
        default=3,
        help="times that each text is written (default: 3)",
    )
    flags.max_tokens_flag(texts, default=96)
    flags.verifier_flags(parser)
    drafting = flags.draft_flags(parser)
    flags.memory_flag(drafting)
    drafting.add_argument(
        "--lengths",
        type=flag_values.lengths,
        default=flag_values.lengths("1-8"),
        metavar="LIST",
        help="fixed numbers of draft tokens a round to try, beside automatic ones, as 1,2,4 or 1-8 (default: 1-8)",
    )
    flags.sampling_flags(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else there")
    output.add_argument("--png", type=flag_values.path, metavar="FILE", help="the picture (default: compare.png)")
    output.add_argument("--no-png", action="store_true", help="no picture")
    flags.profile_flag(output)
    return parser


def report_parser() -> Parser:
    """The parser of `python -m drafter_client report`."""
    parser = Parser(
        "drafter report",
        usage="[FLAGS] DIR",
        description="Show a run that --profile recorded, in the terminal and as a picture.",
        examples=(
            "drafter report runs",
            "drafter report runs --run 2 --no-png",
            "drafter report runs --png run.png",
        ),
    )
    runs = parser.add_argument_group("run")
    runs.add_argument("folder", type=flag_values.path, metavar="DIR", help="the folder that --profile named")
    runs.add_argument("--run", type=flag_values.whole(1), metavar="N", help="which run (default: the last with drafts)")
    picture = parser.add_argument_group("picture").add_mutually_exclusive_group()
    picture.add_argument("--png", type=flag_values.path, metavar="FILE", help="(default: report-N.png in the folder)")
    picture.add_argument("--no-png", action="store_true", help="in the terminal only")
    return parser
