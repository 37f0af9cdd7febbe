"""The texts of one request, generated at the same time: their events in one queue."""

import asyncio
from collections.abc import Sequence

from gateway.openai_api.texts import End, Events, Piece

_ENDING: set[asyncio.Task[None]] = set()  # the event loop alone would not keep these tasks alive


class Running:
    """Reads several texts at once, each in a task. Use it with `async with`.

    When the block is left, the texts are told to end. Nobody waits for that: the pass of a text may be under way, and
    the reply is complete without it.
    """

    def __init__(self, texts: Sequence[Events]) -> None:
        self._texts = texts
        self._queue: asyncio.Queue[tuple[int, Piece | End | Exception]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: set[int] = set()

    async def __aenter__(self) -> "Running":
        self._tasks = [asyncio.create_task(self._read(at, text)) for at, text in enumerate(self._texts)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for at in range(len(self._tasks)):
            self.end(at)

    async def next(self, patience: float) -> tuple[int, Piece | End] | None:
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
        """Tell one text to end. What it has brought and was not read may still come."""
        if at not in self._ended:
            self._ended.add(at)
            self._tasks[at].cancel()
            ending = asyncio.create_task(self._close(at))
            _ENDING.add(ending)
            ending.add_done_callback(_ENDING.discard)

    async def _close(self, at: int) -> None:
        await asyncio.gather(self._tasks[at], return_exceptions=True)  # `_read` has reported its error
        await self._texts[at].aclose()

    async def _read(self, at: int, text: Events) -> None:
        try:
            async for event in text:
                self._queue.put_nowait((at, event))
        except Exception as error:
            self._queue.put_nowait((at, error))
