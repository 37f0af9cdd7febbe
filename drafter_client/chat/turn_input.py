"""Turns of the user: typed with an editor, typed in plain lines, or from a pipe or a file. Defines
the commands of a chat, their parsing and their completion."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from drafter_client.errors import BadPrompt, DrafterError
from specpair.command_line.setting_values import advice
from specpair.protocol.terminal_text import one_line

if sys.platform != "win32":
    import termios

PROMPT, MORE = "> ", "… "
CONTINUED = "\\"  # at the end of a line that is typed: the next line belongs to the same turn
SIGN = "/"
FILE, MODE, TEXT = "FILE", "MODE", "TEXT"
NO_SYSTEM = "off"  # as text of /system: there is no system message any more


class UnknownCommand(DrafterError):
    """A line names an unknown command, or the command's argument is wrong."""


class ChatCommand(NamedTuple):
    """A command. `takes`: its argument; empty: none. `needs`: whether the argument is required."""

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
    """Parse a line of the user: a command if it begins with a slash, else a message, without space around it.

    A space before the slash makes the line a message. Raises UnknownCommand.
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
        raise UnknownCommand(f"{command.usage} takes no argument, got {one_line(argument)[:80]!r}")
    return Called(command, argument)


def completions(typed: str, modes: Sequence[str]) -> list[str]:
    """Completions of the last word of `typed`: names of commands, or modes. Files are not completed."""
    if not typed.startswith(SIGN):
        return []
    name, space, argument = typed[len(SIGN) :].partition(" ")
    if not space:
        return [SIGN + each for each in COMMANDS if each.startswith(name)]
    return [each for each in modes if each.startswith(argument)] if takes(name) == MODE else []


def takes(name: str) -> str:
    """The argument of the command of this name; empty: none, or there is no such command."""
    return COMMANDS[name].takes if name in COMMANDS else ""


def help_lines() -> list[str]:
    width = max(len(each.usage) for each in COMMANDS.values())
    return [f"{each.usage:{width}}  {each.help}" for each in COMMANDS.values()]


class TurnReader(Protocol):
    def read(self) -> str | None:
        """The next turn; None: there is no further one."""


class PipedInput:
    """Reads turns from a pipe or a file: each line is a turn."""

    def read(self) -> str | None:
        """Raises BadPrompt for a line that is not UTF-8."""
        line = b"" if sys.stdin is None else sys.stdin.buffer.readline()
        try:
            return line.decode("utf-8-sig").rstrip("\r\n") if line else None
        except UnicodeDecodeError:
            raise BadPrompt("standard input is not UTF-8 text") from None


class LineInput:
    """Reads turns from a terminal that edits lines itself. A backslash at its end continues a line."""

    def read(self) -> str | None:
        lines: list[str] = []
        while True:
            print(MORE if lines else PROMPT, end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                print(file=sys.stderr)
                return None
            line = line.rstrip("\r\n")
            lines.append(line.removesuffix(CONTINUED))
            if not line.endswith(CONTINUED):
                return "\n".join(lines)


class EditedInput:
    """Enter ends a turn; Alt-Enter, or a backslash before Enter, begins its next line; a paste keeps its lines.

    Ctrl-C empties the input; if that is empty, it ends the input, as Ctrl-D does.
    """

    def __init__(
        self,
        history: History,
        modes: Callable[[], Sequence[str]],
        *,
        input: Input | None = None,
        output: Output | None = None,
    ) -> None:
        """`modes`: returns those that can be chosen at present. `input`, `output`: None: the terminal's."""
        if output is None:
            output = create_output()
            if isinstance(output, Vt100_Output):
                output.enable_cpr = False  # terminals that do not answer it get a warning and a wait of two seconds
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            history=history,
            completer=_Completer(modes),
            complete_while_typing=False,
            key_bindings=_keys(),
            input=input,
            output=output,
        )

    def read(self) -> str | None:
        try:
            return self._session.prompt()
        except EOFError:
            return None


def history_in(file: Path | None) -> History:
    """The input history of earlier runs, readable by the user only; None: none is kept. Raises OSError."""
    if file is None:
        return InMemoryHistory()
    file.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
    return FileHistory(str(file))


class _Completer(Completer):
    def __init__(self, modes: Callable[[], Sequence[str]]) -> None:
        self._modes, self._files = modes, PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        name, space, argument = typed.removeprefix(SIGN).partition(" ")
        if typed.startswith(SIGN) and space and takes(name) == FILE:
            yield from self._files.get_completions(Document(argument), complete_event)
            return
        for each in completions(typed, self._modes()):
            yield Completion(each, -len(argument if space else typed))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # it is in the text already
        elif buffer.document.text_before_cursor.endswith(CONTINUED):
            buffer.delete_before_cursor(len(CONTINUED))
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        buffer: Buffer = event.current_buffer
        if buffer.text:
            buffer.reset()
        else:
            event.app.exit(exception=EOFError)

    return keys


@contextmanager
def unechoed() -> Iterator[None]:
    """A context in which a terminal does not echo typed text, which would mix with an answer. The text is kept for the
    next turn."""
    if sys.platform == "win32" or sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    without = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(terminal, termios.TCSADRAIN, without)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
