"""A terminal's screen and a chat in it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyte
from rich.cells import cell_len

from tests.terminal.pseudo import Terminal, python, terminal


class _Wrapping(pyte.HistoryScreen):
    """Wraps a wide character for which a row has one column left, as terminals do; pyte puts half of it there."""

    def draw(self, data: str) -> None:
        for character in data:
            if cell_len(character) == 2 and self.cursor.x == self.columns - 1:
                self.cursor.x = self.columns
            super().draw(character)


class Screen:
    """A screen. `feed` takes the output of a program."""

    def __init__(self, columns: int, rows: int = 24) -> None:
        self._screen = _Wrapping(columns, rows, history=10_000, ratio=0.5)
        self._stream = pyte.Stream(self._screen)

    def feed(self, text: str) -> None:
        """Show output. Adds a carriage return to each line feed, as a terminal driver does."""
        self._stream.feed(text.replace("\r\n", "\n").replace("\n", "\r\n"))

    @property
    def lines(self) -> list[str]:
        """All lines, scrolled ones first, without trailing blanks and trailing blank lines."""
        scrolled = ["".join(row[at].data for at in range(self._screen.columns)) for row in self._screen.history.top]
        lines = [line.rstrip() for line in [*scrolled, *self._screen.display]]
        while lines and not lines[-1]:
            lines.pop()
        return lines


class Talk:
    """A chat in a terminal."""

    def __init__(self, shown: Terminal, prompt: str) -> None:
        self.terminal, self._prompt, self._prompts = shown, prompt, 0

    def wait_for_prompt(self) -> None:
        self._prompts += 1
        self.terminal.wait_for(f"(?s)^(?:(?:(?!{self._prompt}).)*{self._prompt}){{{self._prompts}}}")

    def say(self, text: str) -> None:
        """Type a turn, and wait for what it brings."""
        self.terminal.type(text + "\r")
        self.wait_for_prompt()

    def leave(self) -> list[str]:
        """Ctrl-D. Returns the lines of the screen."""
        self.terminal.type("\x04")
        assert self.terminal.wait() == 0, self.terminal.text
        self.terminal.wait_until_alone()
        screen = Screen(80)
        screen.feed(self.terminal.raw)
        return screen.lines


@contextmanager
def chatting(url: str, *flags: str, **variables: str) -> Iterator[Talk]:
    command = ["chat", "--verifier", url, "--mode", "target", "--max-tokens", "2000", *flags]
    prompt = "\n> " if variables.get("TERM") == "dumb" else ">\x08"
    with terminal(python("-m", "drafter_client", *command), 80, **variables) as shown:
        talk = Talk(shown, prompt)
        talk.wait_for_prompt()
        yield talk
