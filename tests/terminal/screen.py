"""A terminal in memory: what a person sees when a program is done, and what has scrolled away above."""

import pyte


class Screen:
    """Feed it what a program wrote."""

    def __init__(self, columns: int, rows: int = 24) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=0.5)
        self._stream = pyte.Stream(self._screen)

    def feed(self, text: str) -> None:
        """As a terminal has it, whose driver adds a carriage return to each line feed."""
        self._stream.feed(text.replace("\r\n", "\n").replace("\n", "\r\n"))

    @property
    def lines(self) -> list[str]:
        """From the first to the last, without blanks at the ends of lines and blank lines at the end."""
        gone = ["".join(row[at].data for at in range(self._screen.columns)) for row in self._screen.history.top]
        lines = [line.rstrip() for line in [*gone, *self._screen.display]]
        while lines and not lines[-1]:
            lines.pop()
        return lines
