"""How many rows of the terminal the open block takes, so that it can be erased and written anew."""

from collections.abc import Callable

from rich.cells import cell_len


class Rows:
    """Follows the cursor through the rows of a block. `size`: columns and rows of the terminal at present.

    What cannot be erased for certain is left as it is: a block that is higher than the screen, or that stood there when
    the terminal got another size or something else was written in between.
    """

    def __init__(self, size: Callable[[], tuple[int, int]]) -> None:
        self._size = size
        self._broken = False
        self.begin()

    def begin(self) -> None:
        """A block begins, in a row of its own."""
        self._at_begin = self._size()
        self._broken = False
        self._rows = self._column = 0  # of the cursor, from where the block began
        self._line = 0  # the row in which the present line began

    def leave(self, *, within_line: bool) -> None:
        """The rows so far stay. `within_line`: the next block has begun already, with the present line."""
        if not within_line:
            self.begin()
            return
        self._rows, self._line = self._rows - self._line, 0

    def broken(self) -> None:
        """Something else was written between."""
        self._broken = True

    def wrote(self, text: str) -> None:
        """Move the cursor by a text, as a terminal does that wraps full rows."""
        for character in text:
            if character == "\n":
                self._rows, self._column = self._rows + 1, 0
                continue
            cells = cell_len(character)
            if self._column + cells > self._at_begin[0]:
                self._rows, self._column = self._rows + 1, 0
            self._column += cells

    def line_ended(self) -> None:
        """A line of the block has ended, and the cursor is where the next one begins."""
        self._line = self._rows

    @property
    def erasing(self) -> str | None:
        """What erases the block and puts the cursor where it began; None: it must stay."""
        if self._broken or self._size() != self._at_begin or self._rows > self._at_begin[1] - 2:  # a row is the status
            return None
        up = f"\x1b[{self._rows}A" if self._rows else ""
        return f"\r{up}\x1b[J"
