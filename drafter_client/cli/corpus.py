"""`drafter corpus`: indexes files and folders for drafts, ahead of the texts that look them up."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from backends.machine import corpus_folder
from drafter_client.cli import flags
from drafter_client.cli.steps import api_key, trust, verifier
from drafter_client.display.progress import loading
from drafter_client.errors import DrafterError
from drafter_client.http.addresses import addresses_of
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import RemoteVocabulary
from drafter_client.program_options import ProgramOptions
from specpair.command_line.options import add_options
from specpair.command_line.parser import OneOf, Parser
from specpair.corpus.draft_corpus import BadCorpus, checked
from specpair.corpus.files import Skipped
from specpair.corpus.index import Encode, Store, bring_up_to_date, encoder
from specpair.numbers import counted, sized
from specpair.protocol.terminal_text import one_line


def corpus_parser() -> Parser:
    parser = Parser(
        "drafter corpus",
        usage="build [FLAGS] FOLDER...",
        description="Index files and folders for --draft-corpus before the first text. The index is in the tokens of "
        "the verifier's target, so the verifier has to answer. After an interruption, the next call continues.",
        examples=("drafter corpus build ~/project ~/notes", "drafter corpus build --verifier http://bigbox:8000 src"),
    )
    parser.add_config_flags()
    parser.add_argument("action", choices=OneOf(("build",)), help="index what is new or has changed")
    parser.add_argument("folders", nargs="+", type=flags.path, metavar="FOLDER", help="files and folders")
    add_options(parser.add_argument_group("verifier"), ProgramOptions, ["verifier", "api_key"])
    return parser


def run_corpus(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status: 1 if a file could not be read. Exits with 2 for bad flags."""
    parser = corpus_parser()
    options: Namespace = flags.print_if_asked(parser, flags.parsed(parser, arguments))
    try:
        folders, cache = checked(options.folders), corpus_folder()
    except BadCorpus as error:
        parser.error(str(error))
    if cache is None:
        raise DrafterError("the index needs a cache folder, and this user has no home: set XDG_CACHE_HOME")
    address = addresses_of(verifier(options), direct=True)[0]
    with closing(VerifierClient(*address, api_key=api_key(options), trust=trust(options))) as client:
        vocabulary = RemoteVocabulary(client, client.model())
        encode = encoder(vocabulary)
        return max([_build(folder, Store.of(folder, vocabulary, cache), encode) for folder in folders])


def _build(folder: Path, store: Store, encode: Encode) -> int:
    status = 0

    def tell(skipped: Skipped) -> None:
        nonlocal status
        status = 1
        print(f"drafter: left out, as it cannot be read: {one_line(skipped.path)}", file=sys.stderr)

    try:
        with loading(one_line(str(folder)), verb="indexing") as report:
            bring_up_to_date(store, folder.resolve(), encode, report=report, tell=tell)
    except OSError as error:
        raise DrafterError(
            f"the index of {folder} cannot be written to {store.folder}: {error.strerror}. What is done is kept: mend "
            "that, and run the command again"
        ) from error
    state = store.state()
    left_out = ", ".join(f"{count} {reason}" for reason, count in state.skipped.items())
    print(
        f"{folder}: {counted(state.files, 'file')}, {counted(state.tokens, 'token')}, {sized(store.size)} of index"
        + (f"; left out: {left_out}" if left_out else "")
    )
    return status
