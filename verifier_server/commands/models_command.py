"""The command `verifier models`: the command of both ends, for a program that knows no other verifier."""

from collections.abc import Sequence

from backends.machine import available_bytes
from backends.registry import room
from gateway.openai_api.answers.reply_style import reply_style
from models.commands import command
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import FreeMemory, LoadOptions


def run(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status."""
    parser = command.parser("verifier")
    return command.run(parser, parser.parse(arguments), reply_style, lambda: None, _room)


def _room() -> FreeMemory | None:
    """The memory that llama.cpp has, or the machine's, where it is not installed."""
    try:
        return room("llama_cpp", LoadOptions())
    except ModelLoadError:
        return FreeMemory(available_bytes())
