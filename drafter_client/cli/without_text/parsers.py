"""The parsers of all commands of the drafter, by command, for completions and the documentation."""

from drafter_client.cli import commands
from drafter_client.cli.without_text.models import models_parser
from specpair.command_line import completion
from specpair.command_line.lab_commands import lab_parsers
from specpair.command_line.parser import Parsers
from specpair.http_service.keys import key_command

_PARSERS: Parsers = {
    "drafter": commands.drafter_parser,
    "drafter chat": commands.chat_parser,
    "drafter serve": commands.serve_parser,
    "drafter solo": commands.solo_parser,
    "drafter compare": commands.compare_parser,
    "drafter models": models_parser,
    "drafter key": lambda: key_command.parser("drafter"),
    "drafter completion": lambda: completion.parser("drafter"),
}


def parsers() -> Parsers:
    """By command, those of the lab among them if it is installed."""
    return {**_PARSERS, **lab_parsers("drafter")}
