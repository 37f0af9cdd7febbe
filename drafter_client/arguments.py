"""Command lines of the drafter: which flags each command has, and which of them go together."""

import argparse
from collections.abc import Sequence

from backends.registry import NAMES
from drafter_client import flags
from drafter_client.options import Mode
from speculation.acceptance import Strategy

# Flags that say something about a draft model here, and about drafting here.
_OF_AN_ENGINE = ("--context", "--threads", "--gpu-layers", "--device", "--dtype", "--compile", "--tensor-parallel")
_OF_A_MODEL = ("--draft-model", *_OF_AN_ENGINE, "--translate", "--no-lookup")
SOLO = ("target", "draft", "server")  # what 'drafter solo' may run
_HERE, _THERE = ("--model", "--backend", *_OF_AN_ENGINE), ("--verifier", "--api-key", "--patience")
_OF_DRAFTING = (*_OF_A_MODEL, "--backend", "--branches", "--lockstep")
_OF_MANY = ("--concurrency", "--output")


def drafter_options(arguments: Sequence[str]) -> argparse.Namespace:
    """What the flags of `python -m drafter_client` say. Exits with status 2 where they make no sense."""
    parser = drafter_parser()
    options = parser.parse_args(arguments)
    options.mode, options.strategy = Mode(options.mode), Strategy(options.strategy)
    _check_strategy(parser, options)
    if options.mode is not Mode.AUTO and not options.remember:
        parser.error(f"--no-remember: only --mode auto remembers, leave it out with --mode {options.mode}")
    if options.mode in (Mode.FUSED, Mode.TARGET):
        _refuse(parser, options, _OF_DRAFTING, f"with --mode {options.mode} nothing drafts here")
        if options.mode is Mode.TARGET:
            _refuse(parser, options, ["--draft-n"], f"with --mode {options.mode} nothing drafts")
    else:
        _check_lookup(parser, options)
    if options.prompt_file is None:
        _refuse(parser, options, _OF_MANY, "is for many prompts", "give them with --prompt-file")
    else:
        _refuse(parser, options, ["--baseline"], "is measured beside one text", "compare many with 'drafter compare'")
        if options.output is not None:
            _refuse(parser, options, ["--json"], "--output writes the same lines")
        _refuse(parser, options, ["--verbose"], "shows the decisions on one text", "give it with --prompt")
    return options


def compare_options(arguments: Sequence[str]) -> argparse.Namespace:
    """What the flags of `python -m drafter_client compare` say. Exits with status 2 where they make no sense."""
    parser = compare_parser()
    options = parser.parse_args(arguments)
    _check_lookup(parser, options)
    if options.png is not None and options.no_png:
        parser.error("--png: --no-png says the contrary, leave one of the two out")
    options.mode, options.strategy = Mode.AUTO, Strategy.COUPLED
    return options


def _check_strategy(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    lossy = options.strategy is Strategy.THRESHOLD
    if lossy and options.threshold is None:
        parser.error("--strategy threshold: say from which on a draft is taken, with --threshold")
    if not lossy and options.threshold is not None:
        parser.error(f"--threshold: --strategy {options.strategy} has none, leave one of the two out")
    if options.translate and options.strategy.draws:
        parser.error(
            "--translate: what is translated has no distribution to draw from, as --strategy probabilistic wants"
        )


def _check_lookup(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.backend == flags.NGRAM:
        _refuse(parser, options, _OF_A_MODEL, "--backend ngram drafts without a model")


def _refuse(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    which: Sequence[str],
    reason: str,
    then: str = "leave one of the two out",
) -> None:
    for flag in which:
        name = "lookup" if flag == "--no-lookup" else flag[2:].replace("-", "_")
        if getattr(options, name) != parser.get_default(name):
            parser.error(f"{flag}: {reason}, {then}")


def drafter_parser() -> argparse.ArgumentParser:
    """Flags of `python -m drafter_client`."""
    parser = argparse.ArgumentParser(
        prog="drafter",
        description="Generate text with a verifier: a small model here drafts, the large one there decides.",
        epilog="'drafter solo' runs one model by itself, 'drafter compare' tries every way, 'drafter report DIR' draws "
        "what --profile has written: each has its own --help.",
        allow_abbrev=False,
    )
    flags.verifier_flags(parser)
    parser.add_argument(
        "--mode",
        choices=[str(mode) for mode in Mode],
        default=str(Mode.REMOTE),
        help="who drafts: this machine (remote, the default), the verifier (fused), nobody (target), or auto",
    )
    flags.memory_flags(parser)
    draft = flags.draft_flags(parser)
    draft.add_argument(
        "--draft-n", metavar="auto|N", type=flags.draft_n, default="auto", help="drafts a round (default: auto)"
    )
    flags.many_flags(parser, flags.prompt_flags(parser))
    parser.add_argument("--chat", action="store_true", help="apply the target's chat template to the prompt")
    parser.add_argument("--system", metavar="TEXT", help="system message, with --chat")
    flags.sampling_flags(parser)
    flags.strategy_flags(parser)
    flags.output_flags(parser)
    parser.add_argument("--baseline", action="store_true", help="measure the target alone on the same prompt, too")
    flags.profile_flags(parser)
    return parser


def solo_options(arguments: Sequence[str]) -> argparse.Namespace:
    """What the flags of `python -m drafter_client solo` say. Exits with status 2 where they make no sense."""
    parser = solo_parser()
    options = parser.parse_args(arguments)
    there = options.which == "server"
    for flag in _HERE if there else _THERE:
        name = flag[2:].replace("-", "_")
        if getattr(options, name) != parser.get_default(name):
            where = "the model runs on the verifier" if there else "the model runs here, 'solo server' asks a verifier"
            parser.error(f"{flag}: with 'solo {options.which}' {where}")
    if options.model is not None and options.which == "draft":
        parser.error("--model: 'solo draft' is the shipped draft model, leave one of the two out")
    return options


def solo_parser() -> argparse.ArgumentParser:
    """Flags of `python -m drafter_client solo`."""
    parser = argparse.ArgumentParser(
        prog="drafter solo",
        description="Run one model by itself, token by token, and say how long each token took.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "which",
        nargs="?",
        choices=SOLO,
        default=SOLO[0],
        help="target, draft: the shipped model, on this machine; server: the verifier's target (default: %(default)s)",
    )
    parser.add_argument("--model", type=flags.path, metavar="PATH", help="another model, on this machine")
    flags.verifier_flags(parser)
    flags.engine_flags(parser.add_argument_group("engine"), NAMES, "engine (default: %(default)s)")
    flags.prompt_flags(parser)
    flags.sampling_flags(parser)
    flags.output_flags(parser)
    return parser


def compare_parser() -> argparse.ArgumentParser:
    """Flags of `python -m drafter_client compare`."""
    parser = argparse.ArgumentParser(
        prog="drafter compare",
        description="Write the same texts in every way there is, by turns, and say which is the fastest here.",
        allow_abbrev=False,
    )
    flags.verifier_flags(parser)
    flags.memory_flags(parser)
    flags.draft_flags(parser).add_argument(
        "--lengths",
        type=flags.lengths,
        default=flags.lengths("1-8"),
        metavar="LIST",
        help="fixed drafts a round to try, beside automatic ones, as 1,2,4 or 1-8 (default: 1-8)",
    )
    texts = parser.add_argument_group("texts")
    texts.add_argument(
        "--prompt-file",
        type=flags.path,
        metavar="FILE",
        action="append",
        help="prompts, one a line or JSON Lines; a kind of its own each time it is given (default: the two that ship)",
    )
    texts.add_argument(
        "--runs",
        metavar="N",
        type=flags.from_to(1, 1000),
        default=3,
        help="times that each text is written (default: 3)",
    )
    texts.add_argument("--max-tokens", type=flags.at_least(1), default=96, metavar="N", help="(default: %(default)s)")
    flags.sampling_flags(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else there")
    output.add_argument("--png", type=flags.path, metavar="FILE", help="the picture (default: compare.png)")
    output.add_argument("--no-png", action="store_true", help="no picture")
    flags.profile_flags(parser)
    return parser
