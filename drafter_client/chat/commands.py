"""The commands of a chat: which there are, how a line is read, and how it can be completed."""

from collections.abc import Sequence
from typing import NamedTuple

from drafter_client.errors import DrafterError
from specpair.command_line.given_values import advice
from specpair.protocol.terminal_text import one_line

SIGN = "/"
FILE, MODE, TEXT = "FILE", "MODE", "TEXT"
NO_SYSTEM = "off"  # as text of /system: there is no system message any more


class UnknownCommand(DrafterError):
    """A line is a command that there is not, or is not called as it must be."""


class ChatCommand(NamedTuple):
    """`takes`: what stands behind the name; empty: nothing. `needs`: whether it must stand there."""

    name: str
    takes: str
    help: str
    needs: bool = False

    @property
    def usage(self) -> str:
        argument = self.takes if self.needs or not self.takes else f"[{self.takes}]"
        return f"{SIGN}{self.name} {argument}".rstrip()


COMMANDS = {
    each.name: each
    for each in (
        ChatCommand("stats", "", "all metrics of the last answer"),
        ChatCommand("save", FILE, "write the messages to a file, as JSON in OpenAI's form", needs=True),
        ChatCommand("load", FILE, "go on with the messages of such a file", needs=True),
        ChatCommand("system", TEXT, f"the system message from now on; {NO_SYSTEM}: none; without TEXT: show it"),
        ChatCommand("retry", "", "ask the last question again, with another seed"),
        ChatCommand("new", "", "forget what was said, and begin anew"),
        ChatCommand("model", "", "what both ends run"),
        ChatCommand("mode", MODE, "the mode of the next answers; without MODE: show it"),
        ChatCommand("help", "", "this list"),
        ChatCommand("quit", "", "leave (so does Ctrl-D)"),
    )
}


class Called(NamedTuple):
    command: ChatCommand
    argument: str


def read(line: str) -> Called | str:
    """What a line of the user means: a command if it begins with a slash, else what is said, without space around it.

    A space before the slash makes it part of what is said. Raises UnknownCommand.
    """
    if not line.startswith(SIGN):
        return line.strip()
    name, _, argument = line[len(SIGN) :].strip().partition(" ")
    command, argument = COMMANDS.get(name), argument.strip()
    if command is None:
        hint = f" (for text, put a space before it){advice(name, COMMANDS, shown=SIGN.__add__)}"
        raise UnknownCommand(f"no command {SIGN}{one_line(name)[:80]}{hint}")
    if command.needs and not argument:
        raise UnknownCommand(f"{command.usage}: the {command.takes} is missing")
    if argument and not command.takes:
        raise UnknownCommand(f"{command.usage} takes nothing behind it, got {one_line(argument)[:80]!r}")
    return Called(command, argument)


def completions(typed: str, modes: Sequence[str]) -> list[str]:
    """What may stand in place of the last word of `typed`: names of commands, or modes. Files are not among them."""
    if not typed.startswith(SIGN):
        return []
    name, space, argument = typed[len(SIGN) :].partition(" ")
    if not space:
        return [SIGN + each for each in COMMANDS if each.startswith(name)]
    return [each for each in modes if each.startswith(argument)] if takes(name) == MODE else []


def takes(name: str) -> str:
    """What stands behind the command of this name; empty: nothing, or there is no such command."""
    return COMMANDS[name].takes if name in COMMANDS else ""


def help_lines() -> list[str]:
    width = max(len(each.usage) for each in COMMANDS.values())
    return [f"{each.usage:{width}}  {each.help}" for each in COMMANDS.values()]
