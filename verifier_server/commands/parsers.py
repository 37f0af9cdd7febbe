"""The parsers of all commands of the verifier, by command, for completions and the documentation."""

from collections.abc import Mapping

from models.commands import command as models_command
from specpair.command_line import completion
from specpair.command_line.parser import Parsers
from specpair.http_service.keys import key_command
from specpair.options.option import Option
from verifier_server.commands import compile_command, selftest_command
from verifier_server.flags import flags_parser
from verifier_server.options import OPTIONS


def parsers(options: Mapping[str, Option] = OPTIONS) -> Parsers:
    """The parsers; `options`: the settings for which they have flags, beside the address."""
    return {
        "verifier": lambda: flags_parser(options),
        "verifier compile": lambda: compile_command.parser(options),
        "verifier selftest": lambda: selftest_command.parser(options),
        "verifier models": lambda: models_command.parser("verifier"),
        "verifier key": lambda: key_command.parser("verifier"),
        "verifier completion": lambda: completion.parser("verifier"),
    }
