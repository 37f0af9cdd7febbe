"""Command lines of the drafter."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from backends.contract import DTYPES
from backends.machine import THREADS_AT_MOST
from backends.registry import NAMES
from drafter_client.options import Mode
from models import DEFAULT_DRAFT
from speculation import noise

NGRAM = "ngram"  # as a backend: of the drafter alone
# A branch is a row of the engine, with KV cells of its own and a place in a pass: the tenth best continuation is seldom
# what comes, and engines have bounds of their own that would speak of rows.
_MOST_BRANCHES = 64
# Flags that say something about a draft model here, and about drafting here.
_OF_AN_ENGINE = ("--context", "--threads", "--gpu-layers", "--device", "--dtype", "--compile", "--tensor-parallel")
_OF_A_MODEL = ("--draft-model", *_OF_AN_ENGINE, "--translate", "--no-lookup")
SOLO = ("target", "draft", "server")  # what 'drafter solo' may run
_HERE, _THERE = ("--model", "--backend", *_OF_AN_ENGINE), ("--verifier", "--api-key")
_OF_DRAFTING = (*_OF_A_MODEL, "--backend", "--branches", "--lockstep")
_OF_MANY = ("--concurrency", "--output")
_MOST_TEXTS = 64  # at a time: each has threads and connections of its own


def drafter_options(arguments: Sequence[str]) -> argparse.Namespace:
    """What the flags of `python -m drafter_client` say. Exits with status 2 where they make no sense."""
    parser = drafter_parser()
    options = parser.parse_args(arguments)
    options.mode = Mode(options.mode)
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
    return options


def compare_options(arguments: Sequence[str]) -> argparse.Namespace:
    """What the flags of `python -m drafter_client compare` say. Exits with status 2 where they make no sense."""
    parser = compare_parser()
    options = parser.parse_args(arguments)
    _check_lookup(parser, options)
    if options.png is not None and options.no_png:
        parser.error("--png: --no-png says the contrary, leave one of the two out")
    options.mode = Mode.AUTO
    return options


def _check_lookup(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.backend == NGRAM:
        _refuse(parser, options, _OF_A_MODEL, "--backend ngram drafts without a model")


def _refuse(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    flags: Sequence[str],
    reason: str,
    then: str = "leave one of the two out",
) -> None:
    for flag in flags:
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
    _verifier(parser)
    parser.add_argument(
        "--mode",
        choices=[str(mode) for mode in Mode],
        default=str(Mode.REMOTE),
        help="who drafts: this machine (remote, the default), the verifier (fused), nobody (target), or auto",
    )
    draft = _draft(parser)
    draft.add_argument(
        "--draft-n", metavar="auto|N", type=_draft_n, default="auto", help="drafts a round (default: auto)"
    )
    _many(parser, _prompt(parser))
    parser.add_argument("--chat", action="store_true", help="apply the target's chat template to the prompt")
    parser.add_argument("--system", metavar="TEXT", help="system message, with --chat")
    _sampling(parser)
    _output(parser)
    parser.add_argument("--baseline", action="store_true", help="measure the target alone on the same prompt, too")
    _profile(parser)
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
    parser.add_argument("--model", type=Path, metavar="PATH", help="another model, on this machine")
    _verifier(parser)
    _engine(parser.add_argument_group("engine"), NAMES, "engine (default: %(default)s)")
    _prompt(parser)
    _sampling(parser)
    _output(parser)
    return parser


def compare_parser() -> argparse.ArgumentParser:
    """Flags of `python -m drafter_client compare`."""
    parser = argparse.ArgumentParser(
        prog="drafter compare",
        description="Write the same texts in every way there is, by turns, and say which is the fastest here.",
        allow_abbrev=False,
    )
    _verifier(parser)
    _draft(parser).add_argument(
        "--lengths",
        type=_lengths,
        default=_lengths("1-8"),
        metavar="LIST",
        help="fixed drafts a round to try, beside automatic ones, as 1,2,4 or 1-8 (default: 1-8)",
    )
    texts = parser.add_argument_group("texts")
    texts.add_argument(
        "--prompt-file",
        type=Path,
        metavar="FILE",
        action="append",
        help="prompts, one a line or JSON Lines; a kind of its own each time it is given (default: the two that ship)",
    )
    texts.add_argument(
        "--runs", metavar="N", type=_from_to(1, 1000), default=3, help="times that each text is written (default: 3)"
    )
    texts.add_argument("--max-tokens", type=_at_least(1), default=96, metavar="N", help="(default: %(default)s)")
    _sampling(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else there")
    output.add_argument("--png", type=Path, metavar="FILE", help="the picture (default: compare.png)")
    output.add_argument("--no-png", action="store_true", help="no picture")
    _profile(parser)
    return parser


def _profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", type=Path, metavar="DIR", help="write what happens into this folder; see 'report'")


def _verifier(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("verifier")
    group.add_argument("--verifier", metavar="URL", default="http://127.0.0.1:8000", help="(default: %(default)s)")
    key = os.environ.get("DRAFTER_API_KEY")
    group.add_argument("--api-key", metavar="KEY", default=key, help="its key, if it wants one (or DRAFTER_API_KEY)")


def _draft(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    draft = parser.add_argument_group("draft model")
    draft.add_argument(
        "--draft-model", type=Path, metavar="PATH", default=DEFAULT_DRAFT, help="(default: the small one)"
    )
    draft.add_argument(
        "--branches",
        metavar="N",
        type=_from_to(1, _MOST_BRANCHES),
        default=6,
        help="continuations that it may follow at once, to be ready for corrections (default: %(default)s)",
    )
    draft.add_argument(
        "--translate", action="store_true", help="where the draft model has another vocabulary, draft through text"
    )
    draft.add_argument(
        "--no-lookup",
        dest="lookup",
        action="store_false",
        help="ask the draft model only; do not look drafts up in the text itself",
    )
    draft.add_argument("--lockstep", action="store_true", help="draft, send, wait: nothing side by side")
    _engine(draft, (*NAMES, NGRAM), "engine; ngram: no model, look the text up in itself (default: %(default)s)")
    return draft


def _engine(parser: argparse._ArgumentGroup, names: tuple[str, ...], meaning: str) -> None:
    parser.add_argument("--backend", choices=names, default="llama_cpp", help=meaning)
    parser.add_argument(
        "--context", metavar="TOKENS", type=_at_least(8), help="tokens of context (default: as trained, up to 4096)"
    )
    parser.add_argument(
        "--threads", metavar="N", type=_from_to(1, THREADS_AT_MOST), help="CPU threads (default: from the machine)"
    )
    parser.add_argument(
        "--gpu-layers", metavar="N", type=_at_least(-1), default=-1, help="layers on the GPU; -1: all (default)"
    )
    parser.add_argument("--device", metavar="NAME", help="torch: cpu, cuda, mps, neuron (default: the best there is)")
    parser.add_argument(
        "--dtype", choices=DTYPES, help="torch, mlx: number type (default: by the device; mlx: as stored)"
    )
    parser.add_argument("--compile", action="store_true", help="torch: compile for all shapes first")
    parser.add_argument(
        "--tensor-parallel",
        metavar="N",
        type=_at_least(1),
        default=1,
        help="torch, neuron_legacy: devices that share the model",
    )


def _prompt(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    group = parser.add_argument_group("prompt").add_mutually_exclusive_group()
    group.add_argument("--prompt", metavar="TEXT", help="the text to continue; without it, standard input is read")
    parser.add_argument("--max-tokens", metavar="N", type=_at_least(1), default=128, help="(default: %(default)s)")
    return group


def _many(parser: argparse.ArgumentParser, one_or_many: argparse._MutuallyExclusiveGroup) -> None:
    one_or_many.add_argument(
        "--prompt-file", type=Path, metavar="FILE", help="many prompts: one a line, or JSON Lines if it ends in .jsonl"
    )
    group = parser.add_argument_group("many prompts")
    texts = _from_to(1, _MOST_TEXTS)
    group.add_argument("--concurrency", metavar="N", type=texts, default=1, help="texts at a time (default: 1)")
    group.add_argument(
        "--output", type=Path, metavar="FILE", help="write results there, as JSON Lines; run it again to go on"
    )


def _sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument("--temperature", metavar="T", type=_between(0.0, 100.0), default=0.0, help="0: greedy (default)")
    group.add_argument(
        "--top-p", metavar="P", type=_between(0.0, 1.0, open_low=True), default=1.0, help="nucleus mass (default: off)"
    )
    group.add_argument(
        "--top-k", metavar="K", type=_at_least(0), default=0, help="most likely tokens only; 0: off (default)"
    )
    group.add_argument(
        "--seed", metavar="S", type=_seed, help="the same seed gives the same text (default: drawn, and reported)"
    )


def _output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--json", action="store_true", help="one JSON object a text on standard output, nothing else there"
    )
    group.add_argument("--no-stream", action="store_true", help="print the text at the end")


def _draft_n(text: str) -> str | int:
    return text if text == "auto" else _at_least(0)(text)


def _lengths(text: str) -> list[int]:
    """Numbers and ranges, as 1,2,4-8."""
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        first = _from_to(0, 64)(low)
        last = _from_to(0, 64)(high) if high else first
        if last < first:
            raise argparse.ArgumentTypeError(f"{part!r} ends before it begins")
        found.update(range(first, last + 1))
    return sorted(found)


def _seed(text: str) -> int:
    value = _at_least(0)(text)
    if value >= noise.SEED_LIMIT:
        raise argparse.ArgumentTypeError("must be below 2**53")
    return value


def _at_least(low: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < low:
            raise argparse.ArgumentTypeError(f"must be at least {low}, got {value}")
        return value

    return parse


def _from_to(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = _at_least(low)(text)
        if value > high:
            raise argparse.ArgumentTypeError(f"must be at most {high}, got {value}")
        return value

    return parse


def _between(low: float, high: float, *, open_low: bool = False) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not low <= value <= high or (open_low and value == low):
            raise argparse.ArgumentTypeError(f"must be {'above' if open_low else 'at least'} {low} and at most {high}")
        return value

    return parse
