"""`AsyncPair`: a `Pair` for asyncio programs, whose events are awaited."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TypeVar, Unpack
from weakref import WeakSet

from drafter_client.conversation import Messages
from drafter_client.draft_sources import DraftModel, Source
from drafter_client.generation.generation import Event, Finished, Generation
from drafter_client.options import VERIFIER, Options, PairKeywords
from drafter_client.pair import Pair
from drafter_client.statistics import Stats
from specpair.protocol.service_responses import ModelInfo

T = TypeVar("T")


class AsyncPair:
    """A `Pair` for `async with`. Drafting and verifying run in separate threads, so the event loop stays free."""

    def __init__(
        self,
        verifier: str | Sequence[str] = VERIFIER,
        draft: Source | None = DraftModel(),
        **options: Unpack[PairKeywords],
    ) -> None:
        """Keep the arguments for `Pair`, which is made when the `async with` block is entered; its errors are raised
        there. `options`: see `PairKeywords`."""
        self._make = lambda: Pair(verifier, draft, **options)
        # Not the event loop's default pool, which long texts would block.
        self._threads = ThreadPoolExecutor(max(1, options.get("texts", 1)), thread_name_prefix="pair")
        self._pair: Pair | None = None
        self._why_none = "this pair is not open yet: use it in an `async with` block"
        self._works: WeakSet[_Work] = WeakSet()

    async def __aenter__(self) -> "AsyncPair":
        making = self._threads.submit(self._make)

        def close_if_made(_: Future[Pair]) -> None:
            if not making.cancelled() and making.exception() is None:
                making.result().close()

        try:
            self._pair = await asyncio.shield(asyncio.wrap_future(making))
        except BaseException:
            making.add_done_callback(close_if_made)  # if the task was cancelled, the thread still makes the pair
            self._threads.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        pair = self._opened()
        self._pair, self._why_none = None, "this pair is closed"
        pair.wait_no_more()  # directly, since all threads may be busy waiting for a verifier

        def close() -> None:
            for work in list(self._works):
                work.close()
            pair.close()

        try:
            await asyncio.shield(self._run(close))
        finally:
            self._threads.shutdown(wait=False)

    def _opened(self) -> Pair:
        if self._pair is None:
            raise RuntimeError(self._why_none)
        return self._pair

    @property
    def target(self) -> ModelInfo:
        """The target model, as the verifier's `/model` describes it."""
        return self._opened().target

    async def encode(self, prompt: str) -> list[int]:
        """Return the token ids of a prompt in the target's vocabulary."""
        pair = self._opened()
        return await self._run(lambda: pair.encode(prompt))

    async def chat(self, message: str | Messages, system: str | None = None) -> list[int]:
        """Return the token ids of a conversation; see `Pair.chat`. Raises NoChatTemplate."""
        pair = self._opened()
        return await self._run(lambda: pair.chat(message, system))

    def generate(self, prompt: str | Sequence[int], options: Options = Options()) -> "AsyncGeneration":
        """Return an asynchronous iterator of the events of a text that continues `prompt` (text or token ids). The
        iterator raises the errors of `Pair.generate`, too."""
        pair = self._opened()
        work = _Work(lambda: pair.generate(prompt, options))
        self._works.add(work)
        return AsyncGeneration(work, self._threads)

    def _run(self, do: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.wrap_future(self._threads.submit(do))


class _Work:
    """A `Generation` that pool threads begin, continue and close, one thread at a time."""

    def __init__(self, begin: Callable[[], Generation]) -> None:
        self._begin = begin
        self._lock = Lock()
        self.closed = False
        self.generation: Generation | None = None

    def step(self) -> Event | None:
        with self._lock:
            if self.closed:
                return None
            if self.generation is None:
                self.generation = self._begin()
            return next(self.generation, None)

    def wait_no_more(self) -> None:
        if self.generation is not None:
            self.generation.wait_no_more()

    def close(self) -> None:
        """Wait until a running `step` returns, then end the generation."""
        with self._lock:
            self.closed = True
            if self.generation is not None:
                self.generation.close()


class AsyncGeneration:
    """A `Generation` whose events are awaited, by one task at a time.

    The text ends early when the generation is closed, when its `async with` block is left, when the task that awaits an
    event is cancelled, or when nothing refers to the generation any more. Ending it aborts the request that is under
    way, and waits for a draft step.
    """

    def __init__(self, work: "_Work", threads: ThreadPoolExecutor) -> None:
        """`threads`: the pool in which `work` runs. The work begins when the first event is requested."""
        self._work = work
        self._events = _follow(work, threads)  # does not refer to this object: see `Generation`

    def __aiter__(self) -> "AsyncGeneration":
        return self

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def __aenter__(self) -> "AsyncGeneration":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the text: nothing more is drafted or requested, and the verifier releases the session."""
        self._work.wait_no_more()
        await self._events.aclose()

    async def read(self) -> Finished:
        """Read all events and return the last one. Raises RuntimeError if they were read before."""
        async for event in self:
            if isinstance(event, Finished):
                return event
        raise RuntimeError("this generation has ended already, and its events were read")

    @property
    def stats(self) -> Stats:
        """Statistics of the text: empty before the first event, complete once the text ends, even early."""
        return Stats() if self._work.generation is None else self._work.generation.stats

    @property
    def text(self) -> str:
        """The generated text so far; empty before the first event."""
        return "" if self._work.generation is None else self._work.generation.text


async def _follow(work: _Work, threads: ThreadPoolExecutor) -> AsyncGenerator[Event, None]:
    try:
        while not work.closed and (event := await asyncio.wrap_future(threads.submit(work.step))) is not None:
            yield event
    finally:
        work.wait_no_more()  # directly, since the thread that would close the work may be busy waiting
        if not work.closed:  # it is closed already if the pair was closed first
            await asyncio.shield(asyncio.wrap_future(threads.submit(work.close)))
