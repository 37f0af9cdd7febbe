"""Places for texts: so many are generated at a time, so many wait for their turn, and others are refused."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import suppress

from gateway.openai_api.texts import End, Events, NewTokens
from specpair.fairness import FairTurns, retry_after
from specpair.numbers import counted
from specpair.protocol.errors import Overloaded, SpecPairError
from specpair.protocol.prompt_progress import PromptProgress
from specpair.speculation.acceptance.round_counts import RoundCounts

LOOKS_APART = 1.0  # seconds
_KEEP = 0.9  # weight of the earlier texts in the mean time of a text


class TextQueue:
    """The places of texts. Used in the event loop."""

    def __init__(self, count: Callable[[], int], queue: Callable[[], int], clock: Callable[[], float]) -> None:
        """`count`: how many texts are generated at a time.
        `queue`: how many may wait.
        `clock`: in seconds.
        """
        self._count, self._queue, self.clock = count, queue, clock
        self.taken = 0
        self.on_leave: Callable[[], object] = lambda: None  # called when a text has left
        self._waiting: list[QueuedText] = []
        self._turns = FairTurns[QueuedText](lambda place: place.client)
        self._mean = 0.0  # seconds that a text took, fading; 0: none has ended yet

    @property
    def waiting(self) -> int:
        """How many texts wait for a place."""
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
        """Places for the texts of one request of `client`, or in the queue. They have to be left.

        The queue is looked at once for the whole request, so that one with many texts is not refused for ever. Raises
        what `check` raises.
        """
        self.check()
        entered = [QueuedText(self, client) for _ in range(texts)]
        for place in entered:
            self._turns.arrived(place)
        self._waiting += entered
        self._fill()
        return entered

    def left(self, place: "QueuedText") -> None:
        """Take a place back. `QueuedText.leave` calls it."""
        if place.began is None:
            self._waiting.remove(place)
        else:
            took = self.clock() - place.began
            self._mean = took if not self._mean else _KEEP * self._mean + (1.0 - _KEEP) * took
            self.taken -= 1
            self._fill()
        self.on_leave()

    def _fill(self) -> None:
        while self._waiting and self.taken < self._count():
            self.taken += 1
            self._turns.pop_next(self._waiting).begin(self.clock())


class QueuedText:
    """The place of one text, or its place in the queue."""

    def __init__(self, places: TextQueue, client: Hashable) -> None:
        self._places, self.client = places, client
        self.began: float | None = None  # when its turn came, in seconds; None: it waits
        self._turn = asyncio.Event()
        self._left = False

    async def turn(self, wait_over: Callable[[float], SpecPairError | None]) -> None:
        """Wait until the text may begin.

        `wait_over`: asked again and again; see `TextSource.wait_over`.

        Raises what that returns.
        """
        entered = self._places.clock()
        while not self._turn.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOKS_APART):
                    await self._turn.wait()
            error = None if self._turn.is_set() else wait_over(self._places.clock() - entered)
            if error is not None:
                raise error

    def begin(self, now: float) -> None:
        """Let the text begin. `TextQueue` calls it."""
        self.began = now
        self._turn.set()

    def leave(self) -> None:
        """Give the place to the next text. May be called again."""
        if not self._left:
            self._left = True
            self._places.left(self)


class QueuedEvents:
    """The events of a text that begins when its turn comes; see `Events`."""

    def __init__(self, text: Events, place: QueuedText, wait_over: Callable[[float], SpecPairError | None]) -> None:
        self._text, self._place, self._wait_over = text, place, wait_over
        self._closed = False

    @property
    def counts(self) -> RoundCounts:
        return self._text.counts

    @property
    def cached_tokens(self) -> int:
        return self._text.cached_tokens

    @property
    def prompt_progress(self) -> PromptProgress | None:
        return self._text.prompt_progress

    def begin(self) -> None:
        """Begin to generate if it is the text's turn. Otherwise it begins while its events are awaited."""
        if self._place.began is not None:
            self._text.begin()

    def __aiter__(self) -> AsyncIterator[NewTokens | End]:
        return self._events()

    def stopped(self) -> None:
        self._text.stopped()

    async def aclose(self) -> None:
        if self._closed:
            return
        try:
            await self._text.aclose()
            self._closed = True
        finally:
            self._place.leave()

    async def _events(self) -> AsyncIterator[NewTokens | End]:
        await self._place.turn(self._wait_over)
        async for event in self._text:
            yield event
        await self.aclose()  # now: others wait for the place, and the reader of the events may be slow
