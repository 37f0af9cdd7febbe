"""The queue of texts: limits how many texts are generated and how many wait, and refuses others. `RunningTexts` reads
the texts of one request at once."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress

from gateway.openai_api.texts import End, Events, NewTokens
from specpair.fairness import FairTurns, retry_after
from specpair.numbers import counted
from specpair.protocol.errors import Overloaded, SpecPairError

LOOKS_APART = 1.0  # seconds
_KEEP = 0.9  # weight of the earlier texts in the mean time of a text


class TextQueue:
    """The texts that are generated, and those that wait. Used in the event loop."""

    def __init__(
        self,
        count: Callable[[], int],
        queue: Callable[[], int],
        clock: Callable[[], float],
        wait_over: Callable[[float], SpecPairError | None] = lambda waited: None,
    ) -> None:
        """`count`: how many texts are generated at a time.
        `queue`: how many may wait.
        `clock`: in seconds.
        `wait_over`: see `TextSource.wait_over`.
        """
        self._count, self._queue, self.clock, self.wait_over = count, queue, clock, wait_over
        self.taken = 0
        self.on_leave: Callable[[], object] = lambda: None  # called when a text has left
        self._waiting: list[QueuedText] = []
        self._turns = FairTurns[QueuedText](lambda place: place.client)
        self._mean = 0.0  # seconds that a text took, fading; 0: none has ended yet

    @property
    def waiting(self) -> int:
        """How many texts wait for a slot."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether another request would be refused."""
        return self.taken >= self._count() and self.waiting >= self._queue()

    def check(self) -> None:
        """Raise Overloaded, with `retry_after` in seconds, if another request would be refused."""
        if self.full:
            wait = self._mean * (self.waiting + 1) / max(1, self._count())
            raise Overloaded(
                f"{counted(self.taken, 'text is', 'texts are')} being generated and "
                f"{counted(self.waiting, 'waits', 'wait')}: try again later",
                retry_after=retry_after(wait),
            )

    def enter(self, texts: int = 1, client: Hashable = None) -> "list[QueuedText]":
        """Slots for the texts of one request of `client`, or places in the queue. They have to be left or closed.

        The queue's limit is checked once for the whole request, so that many texts are not refused for ever. Raises
        what `check` raises.
        """
        self.check()
        entered = [QueuedText(self, client) for _ in range(texts)]
        for text in entered:
            self._turns.arrived(text)
        self._waiting += entered
        self._fill()
        return entered

    def left(self, text: "QueuedText") -> None:
        """Free a text's slot; called by `QueuedText.leave`."""
        if text.began is None:
            self._waiting.remove(text)
        else:
            took = self.clock() - text.began
            self._mean = took if not self._mean else _KEEP * self._mean + (1.0 - _KEEP) * took
            self.taken -= 1
            self._fill()
        self.on_leave()

    def _fill(self) -> None:
        while self._waiting and self.taken < self._count():
            self.taken += 1
            self._turns.pop_next(self._waiting).begin(self.clock())


class QueuedText:
    """One text: its slot or its place in the queue, and its events once it is opened."""

    def __init__(self, queue: TextQueue, client: Hashable) -> None:
        self._queue, self.client = queue, client
        self.began: float | None = None  # when its turn came, in seconds; None: it waits
        self._turn = asyncio.Event()
        self._events: Events | None = None
        self._left = self._closed = False

    @property
    def events(self) -> Events:
        assert self._events is not None
        return self._events

    def open(self, events: Events) -> None:
        """Set the text's events. The text begins now if it has a slot, else in `turn`."""
        self._events = events
        if self.began is not None:
            events.begin()

    async def turn(self) -> None:
        """Wait until the text may begin. Raises what `TextSource.wait_over` returns, which is called repeatedly."""
        entered = self._queue.clock()
        while not self._turn.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOKS_APART):
                    await self._turn.wait()
            error = None if self._turn.is_set() else self._queue.wait_over(self._queue.clock() - entered)
            if error is not None:
                raise error

    def begin(self, now: float) -> None:
        """Let the text begin. `TextQueue` calls it."""
        self.began = now
        self._turn.set()

    def leave(self) -> None:
        """Give the slot to the next text. May be called again."""
        if not self._left:
            self._left = True
            self._queue.left(self)

    async def aclose(self) -> None:
        """End the text, and leave. May be called again."""
        if self._closed:
            return
        try:
            if self._events is not None:
                await self._events.aclose()
            self._closed = True
        finally:
            self.leave()


_ENDING: set[asyncio.Task[None]] = set()  # the event loop alone would not keep these tasks alive


class RunningTexts:
    """Reads several texts at once, each in a task. Use it with `async with`.

    When the block is left, the texts end in the background: a text's pass may be under way, and the reply is complete
    without it.
    """

    def __init__(self, texts: Sequence[QueuedText]) -> None:
        self._texts = texts
        self._queue: asyncio.Queue[tuple[int, NewTokens | End | Exception]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: set[int] = set()

    async def __aenter__(self) -> "RunningTexts":
        self._tasks = [asyncio.create_task(self._read(at, text)) for at, text in enumerate(self._texts)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for at in range(len(self._tasks)):
            self.end(at)

    async def next(self, patience: float) -> tuple[int, NewTokens | End] | None:
        """The next event and which text it belongs to; None after `patience` seconds without one.

        Raises the error with which a text ended.
        """
        if self._queue.empty():
            try:
                async with asyncio.timeout(patience):
                    at, event = await self._queue.get()
            except TimeoutError:
                return None
        else:
            at, event = self._queue.get_nowait()
        if isinstance(event, Exception):
            raise event
        return at, event

    def end(self, at: int) -> None:
        """End one text. Its events that were not read yet may still come."""
        if at not in self._ended:
            self._ended.add(at)
            self._tasks[at].cancel()
            ending = asyncio.create_task(self._close(at))
            _ENDING.add(ending)
            ending.add_done_callback(_ENDING.discard)

    async def _close(self, at: int) -> None:
        await asyncio.gather(self._tasks[at], return_exceptions=True)  # `_read` has reported its error
        await self._texts[at].aclose()

    async def _read(self, at: int, text: QueuedText) -> None:
        try:
            await text.turn()
            async for event in text.events:
                self._queue.put_nowait((at, event))
            await text.aclose()  # now: others wait for the place, and the reader of the events may be slow
        except Exception as error:
            self._queue.put_nowait((at, error))
