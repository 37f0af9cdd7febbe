"""Places for texts: so many are generated at a time, so many wait in order, and others are refused."""

import asyncio
import math
from collections import deque
from collections.abc import Callable

from speculation.errors import Overloaded

_KEEP = 0.9  # weight of the earlier texts in the mean time of a text


class Places:
    """The places. Used in the event loop."""

    def __init__(self, places: int, queue: int, clock: Callable[[], float]) -> None:
        """`queue`: how many texts may wait. `clock`: in seconds."""
        self._places, self._queue, self._clock = places, queue, clock
        self.taken = 0
        self._waiting: deque[Place] = deque()
        self._mean = 0.0  # seconds that a text took, fading; 0: none has ended yet

    @property
    def waiting(self) -> int:
        """How many texts wait for a place."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether another text would be refused."""
        return self.taken >= self._places and self.waiting >= self._queue

    def enter(self) -> "Place":
        """A place, or one in the queue. Raises Overloaded, with `retry_after` in seconds, if the queue is full."""
        if self.full:
            wait = max(1, math.ceil(self._mean * (self.waiting + 1) / self._places))
            raise Overloaded(
                f"{self.taken} texts are being generated and {self.waiting} wait: try again later", retry_after=wait
            )
        place = Place(self, self._clock)
        self._waiting.append(place)
        self._fill()
        return place

    def left(self, place: "Place") -> None:
        """Take a place back. `Place.leave` calls it."""
        if place.began is None:
            self._waiting.remove(place)
            return
        took = self._clock() - place.began
        self._mean = took if not self._mean else _KEEP * self._mean + (1.0 - _KEEP) * took
        self.taken -= 1
        self._fill()

    def _fill(self) -> None:
        while self._waiting and self.taken < self._places:
            self.taken += 1
            self._waiting.popleft().begin()


class Place:
    """The place of one text, or its place in the queue."""

    def __init__(self, places: Places, clock: Callable[[], float]) -> None:
        self._places, self._clock = places, clock
        self.began: float | None = None  # when its turn came, in seconds; None: it waits
        self._turn = asyncio.Event()
        self._left = False

    async def turn(self) -> None:
        """Wait until the text may begin."""
        await self._turn.wait()

    def begin(self) -> None:
        """Let the text begin. `Places` calls it."""
        self.began = self._clock()
        self._turn.set()

    def leave(self) -> None:
        """Give the place to the next text. May be called again."""
        if not self._left:
            self._left = True
            self._places.left(self)
