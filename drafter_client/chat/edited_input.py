"""Turns that are typed with an editor: several lines, a history that is kept between runs, completion of commands."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from drafter_client.chat.commands import FILE, SIGN, completions, takes
from drafter_client.chat.plain_input import CONTINUED, PROMPT


class EditedInput:
    """Enter ends a turn; Alt-Enter, or a backslash before Enter, begins another line of it; a paste keeps its lines.

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
        """`modes`: returns those that can be chosen at present.
        `input`, `output`: None: the terminal's.
        """
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
    """What was typed in earlier runs, which only the user may read; None: it is not kept. Raises OSError."""
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
