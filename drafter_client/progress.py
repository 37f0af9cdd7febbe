"""How far loading is, on standard error: a bar on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

_PATIENCE = 1.0  # seconds that may pass without a word

Telling = Callable[[str], AbstractContextManager[Callable[[float], None]]]  # of what is loaded, by name


@contextmanager
def unsaid(what: str) -> Iterator[Callable[[float], None]]:
    """Nobody is told."""
    yield lambda fraction: None


@contextmanager
def loading(what: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[float], None]]:
    """A function to be told of progress, 0 … 1. What is loaded at once goes without a word."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = TextColumn(f"loading {what}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(what, total=1.0)
            yield lambda fraction: bar.update(task, completed=fraction)
        return
    said = clock()

    def say(fraction: float) -> None:
        nonlocal said
        if fraction < 1.0 and clock() - said >= _PATIENCE:
            said = clock()
            print(f"drafter: loading {what} … {fraction:.0%}", file=sys.stderr)

    yield say
