"""The pair for programs on asyncio: the same events, awaited."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from drafter_client.generation import Event, Finished, Generation
from drafter_client.options import Options
from drafter_client.pair import BRANCHES, VERIFIER, Pair
from drafter_client.replies import ModelInfo
from drafter_client.sources import DraftModel, Source
from drafter_client.stats import Stats

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
    ) -> None:
        """As for `Pair`, but that what stands in the way is raised where the block begins."""
        self._make = partial(Pair, verifier, draft, api_key=api_key, branches=branches, texts=texts, profile=profile)
        self._threads = ThreadPoolExecutor(texts, thread_name_prefix="pair")  # of our own: texts take their time
        self._pair: Pair

    async def __aenter__(self) -> "AsyncPair":
        try:
            self._pair = await self._run(self._make)
        except BaseException:
            self._threads.shutdown(wait=False)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._run(self._pair.close)
        finally:
            self._threads.shutdown(wait=False)

    @property
    def target(self) -> ModelInfo:
        """What the verifier serves."""
        return self._pair.target

    async def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt, as the target reads it."""
        return await self._run(lambda: self._pair.encode(prompt))

    async def chat(self, message: str, system: str | None = None) -> list[int]:
        """Token ids of a message to the target, by its own chat template. Raises NoChatTemplate."""
        return await self._run(lambda: self._pair.chat(message, system))

    def generate(self, prompt: str | Sequence[int], options: Options = Options()) -> "AsyncGeneration":
        """Begin to continue `prompt`, text or token ids: an asynchronous iterator of events."""
        return AsyncGeneration(lambda: self._pair.generate(prompt, options), self._threads)

    async def _run(self, do: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, do)


class AsyncGeneration:
    """A `Generation`, awaited event by event. Close it, or use it in an `async with` block, to end it early.

    Closing waits for the exchange under way with the verifier to end, also where the task that awaited it is cancelled.
    """

    def __init__(self, begin: Callable[[], Generation], threads: ThreadPoolExecutor) -> None:
        """`begin` is called in one of the `threads`, when the first event is asked for."""
        self._begin, self._threads = begin, threads
        self._generation: Generation | None = None
        self._step: Future[Event | None] | None = None  # the latest; it may go on though nobody awaits it any more

    def __aiter__(self) -> "AsyncGeneration":
        return self

    async def __anext__(self) -> Event:
        await self._settle()
        self._step = self._threads.submit(self._next)
        event = await asyncio.wrap_future(self._step)
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> "AsyncGeneration":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End it: nothing more is drafted or asked for, and the verifier forgets its session."""
        await self._settle()
        generation = self._generation
        if generation is not None:
            await asyncio.wrap_future(self._threads.submit(generation.close))

    async def read(self) -> Finished:
        """Wait for the end of the text."""
        async for event in self:
            if isinstance(event, Finished):
                return event
        raise RuntimeError("this generation has ended already, and its events were read")

    @property
    def stats(self) -> Stats:
        """Filled on the way, complete when the text ends, however it ends. Empty before the first event."""
        return Stats() if self._generation is None else self._generation.stats

    @property
    def text(self) -> str:
        """All of the text so far."""
        return "" if self._generation is None else self._generation.text

    def _next(self) -> Event | None:
        self._generation = self._generation or self._begin()
        return next(self._generation, None)

    async def _settle(self) -> None:
        """Wait for a step that a cancelled task has left behind."""
        if self._step is not None and not self._step.done():
            await asyncio.wait([asyncio.wrap_future(self._step)])
