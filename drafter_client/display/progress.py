"""Progress on standard error: a bar on a terminal, else a line now and then."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from drafter_client.display.status_line import displayed, draw, screen_is_ours
from drafter_client.display.status_line import say as say_line
from drafter_client.http.outages import Outage
from specpair.numbers import counted
from specpair.protocol.prompt_progress import PromptProgress

_LOADING_PAUSE = 1.0  # seconds between lines while a model is loaded
_WRITING_PAUSE = 10.0  # seconds between lines while many texts are generated
_WIPE_ROW = "\r\x1b[2K"  # the bar is one row, and the cursor is in it

ProgressReport = Callable[[str], AbstractContextManager[Callable[[float], None]]]  # as `loading` and `silent` are


@contextmanager
def silent(what: str) -> Iterator[Callable[[float], None]]:
    yield lambda fraction: None


@contextmanager
def loading(
    what: str, clock: Callable[[], float] = time.monotonic, verb: str = "loading"
) -> Iterator[Callable[[float], None]]:
    """Show the progress of loading `what`. Yields a function to call with the fraction loaded, 0 to 1.

    Without a terminal, a line a second is printed, and none for loading that takes less. `verb`: what is done.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        columns = TextColumn(f"{verb} {what}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(what, total=1.0)
            yield lambda fraction: bar.update(task, completed=fraction)
        return
    last = clock()

    def say(fraction: float) -> None:
        nonlocal last
        if fraction < 1.0 and clock() - last >= _LOADING_PAUSE:
            last = clock()
            print(f"drafter: {verb} {what} … {fraction:.0%}", file=sys.stderr)

    yield say


class WritingProgress:
    """Shows the progress of many texts, in a line now and then."""

    def __init__(self, prompts: int, done: int, clock: Callable[[], float]) -> None:
        self._prompts, self._done, self._tokens, self._clock = prompts, done, 0, clock
        self._last = clock()
        self._lock = threading.Lock()

    def wrote(self, tokens: int) -> None:
        """Count `tokens` more tokens, of any text. Any thread may call it."""
        with self._lock:
            self._tokens += tokens
            self._show()

    def finished(self) -> None:
        with self._lock:
            self._done += 1

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def row_of_its_own(self) -> str:
        """The text that a signal handler writes first, so that its line begins a new row. Takes no lock."""
        return "\n" if sys.stderr.isatty() else ""  # after the ^C that the terminal shows

    def _show(self) -> None:
        if self._clock() - self._last >= _WRITING_PAUSE:
            self._last = self._clock()
            of = f"{self._done} of {counted(self._prompts, 'prompt')}"
            print(f"drafter: {of}, {counted(self._tokens, 'token')}", file=sys.stderr)


class _Bar(WritingProgress):
    """Progress as a bar."""

    def __init__(self, bar: Progress, prompts: int, done: int, clock: Callable[[], float]) -> None:
        super().__init__(prompts, done, clock)
        self._bar, self._is_aside = bar, False
        self._task = bar.add_task("prompts", total=prompts, completed=done, tokens=counted(0, "token"))

    def finished(self) -> None:
        self._bar.advance(self._task)

    @contextmanager
    def aside(self) -> Iterator[None]:
        self._bar.stop()
        self._is_aside = True
        try:
            yield
        finally:
            self._is_aside = False
            self._bar.start()

    def row_of_its_own(self) -> str:
        return "\n" if self._is_aside else _WIPE_ROW

    def say(self, line: str) -> None:
        """Write `line` above the bar."""
        self._bar.console.print(Text(line), soft_wrap=True)

    def busy(self, what: str) -> bool:
        return False

    def _show(self) -> None:
        self._bar.update(self._task, tokens=counted(self._tokens, "token"))


@contextmanager
def writing(prompts: int, done: int, clock: Callable[[], float] = time.monotonic) -> Iterator[WritingProgress]:
    """Show the progress over `prompts` prompts, `done` of them finished already. A bar erases what stands below it."""
    console = Console(stderr=True)
    if not console.is_terminal or not screen_is_ours(sys.stdout):
        yield WritingProgress(prompts, done, clock)
        return
    columns = TextColumn("prompts"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[tokens]}")
    # rich would redirect standard output to the console of the bar.
    bar = Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    )
    drawn = _Bar(bar, prompts, done, clock)
    with bar, displayed(drawn):
        yield drawn


@contextmanager
def verifier_loading(log: Callable[[str], object] | None = None) -> Iterator[Callable[[float | None], None]]:
    """A context that yields a callback for the progress of the verifier's loading, 0 to 1; None: unknown.

    On a terminal it shows one row, which is gone when the context is left; elsewhere, a line for each tenth. `log`:
    takes these lines in place of standard error.
    """
    in_place = log is None and sys.stderr.isatty()
    last = -1

    def say(progress: float | None) -> None:
        nonlocal last
        tenth = int(10 * (progress or 0.0))
        if tenth > last:
            last = tenth
            line = f"the verifier is loading its model … {10 * tenth}%"
            if in_place:
                print(f"{_WIPE_ROW}drafter: {line}", end="", file=sys.stderr, flush=True)
            else:
                (log or say_notice)(line)

    try:
        yield say
    finally:
        if in_place and last >= 0:
            print(_WIPE_ROW, end="", file=sys.stderr, flush=True)


def say_notice(line: str) -> None:
    say_line(f"drafter: {line}")


def say_prompt() -> Callable[[PromptProgress], None]:
    """A callback that shows how much of a long prompt is read: in the status line, else in lines on standard error, ten
    seconds apart. On a terminal without a status line it shows nothing."""
    due = 0.0

    def say(progress: PromptProgress) -> None:
        nonlocal due
        line = f"reading the prompt … {progress.read} of {counted(progress.of, 'token')}"
        if not draw(line) and time.monotonic() >= due and not sys.stderr.isatty():
            due = time.monotonic() + _WRITING_PAUSE
            say_notice(line)

    return say


def say_outage(log: Callable[[str], object] | None = None) -> Callable[[Outage], None]:
    """A callback that shows a wait for the verifier in the status line below a text. Where there is none, it prints a
    line when an outage begins, and one when it is over, on standard error or to `log`."""
    said = False

    def say(outage: Outage) -> None:
        nonlocal said
        progress = "" if outage.progress is None else f", {outage.progress:.0%}"
        waited = f"{outage.seconds:.0f} s of {outage.patience:.0f} (--patience)"
        line = f"waiting for the verifier ({outage.why}{progress}) … {waited}"
        if outage.over:
            line = f"the verifier answers again after {outage.seconds:.0f} s"
        if not draw(line) and said == outage.over:
            said = not said
            (log or say_notice)(line)

    return say
