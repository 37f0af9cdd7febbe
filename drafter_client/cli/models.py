"""`drafter models`: lists, fetches and compares models, and says which can draft for the running verifier."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from backends.registry import room
from drafter_client.cli.flags import parsed, print_if_asked
from drafter_client.cli.steps import api_key, trust, verifier
from drafter_client.errors import DrafterError, VerifierUnreachable, VocabularyMismatch
from drafter_client.http.addresses import addresses_of
from drafter_client.http.client import VerifierClient
from drafter_client.http.remote_vocabulary import check_vocabulary
from drafter_client.program_options import ProgramOptions
from gateway.openai_api.answer import reply_style
from models.commands import command
from specpair.command_line.options import add_options
from specpair.command_line.parser import Parser
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.protocol.errors import SpecPairError


def models_parser() -> Parser:
    parser = command.parser("drafter")
    parser.add_config_flags()
    add_options(parser.add_argument_group("verifier, for list and suggest"), ProgramOptions, ["verifier", "api_key"])
    return parser


def run_models(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status. Exits with status 2 for bad flags."""
    parser = models_parser()
    options = parsed(parser, arguments)
    print_if_asked(parser, options)
    with ExitStack() as stack:

        def running() -> command.ServedModel | None:
            try:
                address = addresses_of(verifier(options), direct=True)[0]
            except VerifierUnreachable:
                return None
            client = VerifierClient(*address, api_key=api_key(options), trust=trust(options))
            stack.callback(client.close)
            try:
                info = client.model()
            except (DrafterError, SpecPairError):
                return None

            def differs(path: Path) -> str | None:
                from backends.llama_cpp.model import read_gguf_vocabulary  # with llama.cpp

                try:
                    check_vocabulary(client, read_gguf_vocabulary(path)[0], path.stem, info)
                except (VocabularyMismatch, ModelLoadError) as error:
                    return str(error)
                return None

            return command.ServedModel(info.name, info.vocabulary.ordinary, differs)

        return command.run(parser, options, reply_style, running, lambda: room("llama_cpp", LoadOptions()))
