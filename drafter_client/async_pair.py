"""The pair for programs on asyncio: the same events, awaited."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TypeVar
from weakref import WeakSet

from drafter_client.generation.generation import Event, Finished, Generation
from drafter_client.http.outages import PATIENCE, Outage
from drafter_client.http.responses import ModelInfo
from drafter_client.metrics.statistics import Stats
from drafter_client.options import Options
from drafter_client.pair import BRANCHES, VERIFIER, Pair
from drafter_client.sources import DraftModel, Source

T = TypeVar("T")


class AsyncPair:
    """A `Pair`, in an `async with` block. The event loop is free meanwhile: drafting has threads of its own."""

    def __init__(
        self,
        verifier: str = VERIFIER,
        draft: Source | None = DraftModel(),
        *,
        api_key: str | None = None,
        branches: int = BRANCHES,
        texts: int = 1,
        profile: Path | None = None,
        memory: Path | None = None,
        patience: float = PATIENCE,
        on_outage: Callable[[Outage], None] | None = None,
    ) -> None:
        """As for `Pair`, but that what stands in the way is raised where the block begins. `on_outage` is called by a
        thread that is not the event loop's."""
        self._make = partial(
            Pair,
            verifier,
            draft,
            api_key=api_key,
            branches=branches,
            texts=texts,
            profile=profile,
            memory=memory,
            patience=patience,
            on_outage=on_outage,
        )
        self._threads = ThreadPoolExecutor(max(1, texts), thread_name_prefix="pair")  # of our own: texts take long
        self._pair: Pair | None = None
        self._why_none = "this pair is not open yet: use it in an `async with` block"
        self._works: WeakSet[_Work] = WeakSet()

    async def __aenter__(self) -> "AsyncPair":
        making = self._threads.submit(self._make)
        try:
            self._pair = await asyncio.shield(asyncio.wrap_future(making))
        except BaseException:
            making.add_done_callback(_close_if_made)  # of a cancelled task, it goes on to be made
            self._threads.shutdown(wait=False)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pair = self._opened()
        self._pair, self._why_none = None, "this pair is closed"
        pair.wait_no_more()  # at once: the threads may be busy waiting
        try:
            await asyncio.shield(self._run(lambda: self._close(pair)))
        finally:
            self._threads.shutdown(wait=False)

    def _close(self, pair: Pair) -> None:
        for work in list(self._works):
            work.close()
        pair.close()

    def _opened(self) -> Pair:
        if self._pair is None:
            raise RuntimeError(self._why_none)
        return self._pair

    @property
    def target(self) -> ModelInfo:
        """What the verifier serves."""
        return self._opened().target

    async def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt, as the target reads it."""
        pair = self._opened()
        return await self._run(lambda: pair.encode(prompt))

    async def chat(self, message: str, system: str | None = None) -> list[int]:
        """Token ids of a message to the target, by its own chat template. Raises NoChatTemplate."""
        pair = self._opened()
        return await self._run(lambda: pair.chat(message, system))

    def generate(self, prompt: str | Sequence[int], options: Options = Options()) -> "AsyncGeneration":
        """Begin to continue `prompt`, text or token ids: an asynchronous iterator of events, which raises what
        `Pair.generate` does, too."""
        pair = self._opened()
        work = _Work(lambda: pair.generate(prompt, options))
        self._works.add(work)
        return AsyncGeneration(work, self._threads)

    def _run(self, do: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.wrap_future(self._threads.submit(do))


def _close_if_made(making: "Future[Pair]") -> None:
    if not making.cancelled() and making.exception() is None:
        making.result().close()


class _Work:
    """A `Generation` that is begun, carried on and closed by threads, one at a time."""

    def __init__(self, begin: Callable[[], Generation]) -> None:
        self._begin = begin
        self._lock = Lock()
        self.closed = False
        self.generation: Generation | None = None

    def step(self) -> Event | None:
        """The next event, None behind the last."""
        with self._lock:
            if self.closed:
                return None
            if self.generation is None:
                self.generation = self._begin()
            return next(self.generation, None)

    def wait_no_more(self) -> None:
        """As `Generation` has it. At once."""
        if self.generation is not None:
            self.generation.wait_no_more()

    def close(self) -> None:
        """Wait for the step under way, and end the generation."""
        with self._lock:
            self.closed = True
            if self.generation is not None:
                self.generation.close()


class AsyncGeneration:
    """A `Generation`, awaited event by event; for one task at a time.

    It ends early when it is closed, or its `async with` block left, or the task that awaits an event is cancelled; also
    when nothing refers to it any more. To end it takes as long as the exchange under way with the verifier; one that
    went away is waited for no more.
    """

    def __init__(self, work: "_Work", threads: ThreadPoolExecutor) -> None:
        """The work is done in the `threads`, from when the first event is asked for."""
        self._work = work
        self._events = _follow(work, threads)  # does not refer to this object: see `Generation`

    def __aiter__(self) -> "AsyncGeneration":
        return self

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def __aenter__(self) -> "AsyncGeneration":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End it: nothing more is drafted or asked for, and the verifier forgets its session."""
        self._work.wait_no_more()
        await self._events.aclose()

    async def read(self) -> Finished:
        """Wait for the end of the text."""
        async for event in self:
            if isinstance(event, Finished):
                return event
        raise RuntimeError("this generation has ended already, and its events were read")

    @property
    def stats(self) -> Stats:
        """Filled on the way, complete when the text ends, however it ends. Empty before the first event."""
        return Stats() if self._work.generation is None else self._work.generation.stats

    @property
    def text(self) -> str:
        """All of the text so far."""
        return "" if self._work.generation is None else self._work.generation.text


async def _follow(work: _Work, threads: ThreadPoolExecutor) -> AsyncGenerator[Event, None]:
    """Its end, for whatever reason, is the end of the work."""
    try:
        while not work.closed and (event := await asyncio.wrap_future(threads.submit(work.step))) is not None:
            yield event
    finally:
        work.wait_no_more()  # at once: the thread that would close it may be busy waiting
        if not work.closed:  # as it is where the pair was closed before
            await asyncio.shield(asyncio.wrap_future(threads.submit(work.close)))
