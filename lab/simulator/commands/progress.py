"""How far a run is: a bar on a terminal, and Ctrl-C, which ends it with what has come of it so far."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from lab.simulator.running.simulate import Stopped


@contextmanager
def shown(seconds: float, what: str = "simulated") -> Iterator[Callable[[float], None]]:
    """A context in which the function that it gives shows on standard error, if that is a terminal, how many of
    `seconds` simulated ones are over. The bar vanishes at its end.

    In it, Ctrl-C has that function raise Stopped at its next call. A second Ctrl-C raises KeyboardInterrupt at once.
    """
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
        TimeRemainingColumn(),
    )
    before = signal.signal(signal.SIGINT, stop)
    try:
        with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task(what, total=seconds)

            def tell(now: float) -> None:
                bar.update(task, completed=now)
                if stopped:
                    raise Stopped

            yield tell
    finally:
        signal.signal(signal.SIGINT, before)
