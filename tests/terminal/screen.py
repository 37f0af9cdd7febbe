"""A terminal in memory: the screen after a program has ended, and the lines that have scrolled away."""

import pyte
from rich.cells import cell_len


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
