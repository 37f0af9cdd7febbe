"""How far a run is: a bar in a terminal, a line for each repetition of a side elsewhere."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from lab.bench.load.jobs import WARM_UP, PlannedStretch
from lab.bench.records import MeasuredRequest, Stretch
from lab.bench.run.measuring import Watch
from specpair.numbers import counted

_Turn = tuple[str, int, str]  # case, repetition, side
_REDRAWS = 2.0  # a second: each takes a few milliseconds, in which no chunk's time is taken


@contextmanager
def shown(
    console: Console, stretches: Sequence[PlannedStretch], repetitions: int, chunks: Callable[[], int]
) -> Iterator[Watch]:
    """A watch of a run that shows its progress on `console`.

    `stretches`: those that are left.
    `chunks`: how many chunks with text came so far.
    """
    if not console.is_terminal:
        yield _Lines(console, stretches, repetitions)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Chunks(chunks),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=_REDRAWS) as progress:
        yield _Bar(progress, sum(job.requests for each in stretches for job in each.jobs), repetitions)


class _Chunks(ProgressColumn):
    """How many chunks came: it moves while a long text is written."""

    def __init__(self, chunks: Callable[[], int]) -> None:
        super().__init__()
        self._chunks = chunks

    def render(self, task: Task) -> Text:
        return Text(counted(self._chunks(), "chunk"), style="progress.data.speed")


class _Bar:
    """One bar over all requests that are left."""

    def __init__(self, progress: Progress, total: int, repetitions: int) -> None:
        self._progress, self._repetitions = progress, repetitions
        self._task = progress.add_task("", total=total)

    def begin(self, stretches: Sequence[PlannedStretch]) -> None:
        names = ", ".join(each.side for each in stretches)
        self._progress.update(self._task, description=f"{_place(stretches[0], self._repetitions)}: {names}")

    def request(self, request: MeasuredRequest) -> None:
        self._progress.advance(self._task)

    def stretch(self, stretch: Stretch) -> None:
        pass


class _Lines:
    """A line when the last stretch of a side's repetition is over: for logs."""

    def __init__(self, console: Console, stretches: Sequence[PlannedStretch], repetitions: int) -> None:
        self._console, self._repetitions = console, repetitions
        self._left = Counter(map(_turn, stretches))
        self._requests, self._seconds = Counter[_Turn](), defaultdict[_Turn, float](float)

    def begin(self, stretches: Sequence[PlannedStretch]) -> None:
        pass

    def request(self, request: MeasuredRequest) -> None:
        self._requests[_turn(request)] += 1

    def stretch(self, stretch: Stretch) -> None:
        turn = _turn(stretch)
        self._left[turn] -= 1
        self._seconds[turn] += stretch.ended - stretch.begun
        if self._left[turn] == 0:
            made, place = counted(self._requests[turn], "request"), _place(stretch, self._repetitions)
            said = f"drafter: {place}: {stretch.side}, {made} in {self._seconds[turn]:.1f} s"
            self._console.print(said, soft_wrap=True)


def _turn(of: PlannedStretch | Stretch | MeasuredRequest) -> _Turn:
    return of.case, of.repetition, of.side


def _place(stretch: PlannedStretch | Stretch, repetitions: int) -> str:
    if stretch.repetition == WARM_UP:
        return f"{stretch.case}, warming up"
    return f"{stretch.case}, repetition {stretch.repetition + 1} of {repetitions}"
