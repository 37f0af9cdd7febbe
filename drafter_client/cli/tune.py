"""`drafter tune`: chooses a draft model for the verifier's target, fetches it after one question, and measures its
gain."""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from backends.named_model import known_drafters
from backends.registry import room
from drafter_client.cli import flags
from drafter_client.cli.flags import parsed, print_if_asked
from drafter_client.cli.steps import api_key, draft_model, trust, verifier
from drafter_client.display.progress import say_outage, verifier_loading
from drafter_client.draft_sources import DraftModel, Lookup, Source
from drafter_client.hosts import HostsFile
from drafter_client.http.addresses import addresses_of
from drafter_client.http.client import VerifierClient
from drafter_client.options import Mode, PairKeywords
from drafter_client.pair import Pair
from drafter_client.program_options import NGRAM, ProgramOptions, engines
from drafter_client.tuning import SECONDS, DraftCandidate, Tuned, tune
from models import DEFAULT_DRAFT
from models.commands.description import describe_gguf
from models.commands.showing import print_json
from models.hub.gguf_head import read_head
from specpair.command_line.options import add_options
from specpair.command_line.parser import Parser, Switch
from specpair.drafters.base import NGRAM_LOOKUP
from specpair.protocol.service_responses import ModelInfo
from specpair.protocol.terminal_text import one_line


def tune_parser() -> Parser:
    parser = Parser(
        "drafter tune",
        usage="[FLAGS]",
        description="Find the draft model that helps most with this verifier over this link: choose one of the "
        "catalogue, fetch it after one question, write three short texts with it and with the target alone by turns, "
        "try another size if that may help more, and say what to keep.",
        examples=("drafter tune --verifier http://bigbox:8000", "drafter tune --yes --json"),
    )
    parser.add_config_flags()
    parser.add_argument("--yes", action=Switch, help="fetch draft models without a question, also of other sizes")
    parser.add_argument(
        "--seconds",
        type=flags.whole(1),
        metavar="N",
        default=int(SECONDS),
        help="begin no further draft model that would end later, downloads included (default: %(default)s)",
    )
    flags.lasting_flags(parser, "verifier")
    add_options(parser.add_argument_group("drafting"), ProgramOptions, ["draft_model", "draft_hf", "draft_weights"])
    backend = {"words": "engine of the draft model", "choices": engines(drafters=False)}
    flags.engine_flags(parser.add_argument_group("engine of the draft model"), backend=backend)
    parser.add_argument_group("output").add_argument(
        "--json", action=Switch, help="print one JSON object on standard output, and nothing else there"
    )
    return parser


def tune_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = tune_parser()
    return print_if_asked(parser, parsed(parser, arguments))


def run_tune(options: argparse.Namespace) -> int:
    """Measure, and print what is kept. Returns the exit status."""

    def say(line: str) -> None:
        print(one_line(line), file=sys.stderr if options.json else sys.stdout, flush=True)

    def make(source: Source) -> Pair:
        told = PairKeywords(patience=options.patience, on_outage=say_outage(), on_notice=say)
        told |= {"api_key": api_key(options), "trust": trust(options)}
        return Pair(url, source, **told)

    url = verifier(options)
    address = addresses_of(url, direct=True)[0]
    with closing(VerifierClient(*address, api_key=api_key(options), trust=trust(options))) as client:
        with verifier_loading() as on_wait:
            client.wait_until_ready(on_wait=on_wait)
        info = client.model()
    named = options.draft_hf or (options.draft_model if options.draft_model != DEFAULT_DRAFT else None)
    if named is None:
        tuned = tune_for(info, draft_model(options), make, say, yes=options.yes, seconds=options.seconds)
    else:
        name = named.stem if isinstance(named, Path) else named
        tuned = tune(info.name, [DraftCandidate(name, draft_model(options), 0)], make, say, seconds=options.seconds)
    say(str(tuned))
    if options.joined is not None:
        HostsFile().keep(replace(options.joined, **_to_keep(tuned, named)))
    if options.json:
        print_json(asdict(tuned))
    return 0


def _to_keep(tuned: Tuned, named: Path | str | None) -> dict[str, Any]:
    """What a joined host's entry says of drafting. `named`: the draft model that the user named."""
    if tuned.kept is None:
        return {"draft_model": "", "mode": str(Mode.TARGET), "gain": 1.0}
    draft = str(named.absolute()) if isinstance(named, Path) else named or tuned.kept.draft
    if draft == NGRAM_LOOKUP:
        draft = NGRAM
    if draft == DEFAULT_DRAFT.stem:
        draft = ""
    return {"draft_model": draft, "mode": str(tuned.kept.mode), "gain": tuned.kept.gain}


def tune_for(
    info: ModelInfo,
    base: DraftModel,
    make: Callable[[Source], Pair],
    say: Callable[[str], object],
    *,
    yes: bool = False,
    seconds: float = SECONDS,
) -> Tuned:
    """Choose draft models for a target, ask once whether to fetch the best, and measure; see `tune`.

    A model that is not in the cache is fetched after the question, or with `yes`; only then other sizes are, too.

    `base`: the options of a draft model, but for its name.

    Raises what `make` raises, and ModelLoadError for a catalogue that is none.
    """
    free = room(base.backend, base.engine)
    choice, here = known_drafters(info.name, info.vocabulary.ordinary, None if free is None else free.free)
    fetched, asked, left_out = list[DraftCandidate](), False, list[str]()
    for entry in choice.entries:
        wanted = entry.name in here or yes
        if not (wanted or asked or fetched):
            asked, wanted = True, _ask(f"draft model {entry.words}: fetch? [Y/n]")
        if wanted:
            fetched.append(DraftCandidate(entry.name, replace(base, hf=entry.name, path=DEFAULT_DRAFT), entry.bytes))
        else:
            left_out.append(entry.words)
    if not fetched:
        fetched.append(_without_catalogue(info, base))
        if choice.advice:
            say(f"{choice.advice}; {fetched[0].name} drafts instead")
    tuned = tune(info.name, fetched, make, say, seconds=seconds)
    if left_out:
        say(f"not fetched, so not measured: {'; '.join(left_out)} (--yes fetches what may gain more)")
    return tuned


def _without_catalogue(info: ModelInfo, base: DraftModel) -> DraftCandidate:
    """The draft model that ships, where it has the target's vocabulary; else lookup in the text."""
    ships = describe_gguf(DEFAULT_DRAFT.stem, [read_head(DEFAULT_DRAFT)])
    if ships.vocabulary is not None and ships.vocabulary.ordinary == info.vocabulary.ordinary:
        return DraftCandidate(ships.name, replace(base, hf=None, path=DEFAULT_DRAFT), ships.weight_bytes)
    return DraftCandidate(NGRAM_LOOKUP, Lookup(), 0)


def _ask(question: str) -> bool:
    """Ask in the terminal, where Enter means yes, and the end of the input no. False without a terminal."""
    print(one_line(question), end=" ", file=sys.stderr, flush=True)
    if sys.stdin is not None and sys.stdin.isatty():
        return sys.stdin.readline().lower() in ("\n", "y\n", "yes\n")
    print("no terminal to ask in: give --yes", file=sys.stderr)
    return False
