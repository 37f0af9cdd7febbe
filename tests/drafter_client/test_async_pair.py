"""AsyncPair: the events of a pair, a free event loop, and no session or thread left by cancelled tasks."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from drafter_client import (
    AsyncPair,
    Custom,
    DrafterError,
    DraftModel,
    Finished,
    Lookup,
    Mode,
    Options,
    Tokens,
    async_pair,
)
from drafter_client.errors import BadPrompt, VerifierUnreachable
from drafter_client.pair import Pair
from tests.drafter_client.support import Scenario, Verifier, toy_text

PROMPT = "def f(x):"
TOY = DraftModel(Path("1"), "scripted")
MODES = pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.TARGET])


@pytest.fixture(autouse=True)
def _no_session_or_thread_is_left(verifier: Verifier) -> Iterator[None]:
    """No session is left on the verifier, and no thread but those that end with their last work: of the pools, and of
    the verifier's child that tries grammars."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        assert thread.name.startswith(("pair", "grammar trial", "child deadline"))
        thread.join(10.0)
        assert not thread.is_alive()
    assert verifier.sessions == 0


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end; what asyncio would only log (an error that was never retrieved, for example) fails, too."""
    logged: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: logged.append(context))
        await work
        gc.collect()

    asyncio.run(watched())
    assert not logged


def test_events_are_those_of_a_pair(verifier: Verifier) -> None:
    async def work() -> None:
        async with AsyncPair(verifier.url, TOY) as pair:
            assert pair.target.name == "scripted-1" and len(await pair.encode(PROMPT)) == 10
            text = pair.generate(PROMPT, Options(max_tokens=40))
            assert (text.text, text.stats.token_ids) == ("", [])
            *events, last = [event async for event in text]
            assert isinstance(last, Finished) and last.token_ids == toy_text(40)
            assert [t.id for event in events if isinstance(event, Tokens) for t in event.tokens] == last.token_ids
            assert text.text == last.text and text.stats is last.stats
            with pytest.raises(RuntimeError, match="has ended already"):
                await text.read()

    _run(work())


def test_errors_are_those_of_a_pair(verifier: Verifier) -> None:
    async def work() -> None:
        with pytest.raises(VerifierUnreachable):
            await AsyncPair("http://127.0.0.1:9", Lookup()).__aenter__()
        with pytest.raises(DrafterError, match="texts must be at least 1"):
            await AsyncPair(verifier.url, Lookup(), texts=0).__aenter__()
        async with AsyncPair(verifier.url, Lookup()) as pair:
            with pytest.raises(BadPrompt):
                await anext(pair.generate([]))
            assert (await pair.generate(PROMPT, Options(max_tokens=3)).read()).token_ids == toy_text(3)

    _run(work())


WAYS: dict[str, Callable[[AsyncPair, Options], Awaitable[None]]] = {}


def _way(end: Callable[[AsyncPair, Options], Awaitable[None]]) -> Callable[[AsyncPair, Options], Awaitable[None]]:
    WAYS[end.__name__] = end
    return end


@_way
async def _closed(pair: AsyncPair, options: Options) -> None:
    text = pair.generate(PROMPT, options)
    await anext(text)
    await text.aclose()
    assert [event async for event in text] == []


@_way
async def _left_block(pair: AsyncPair, options: Options) -> None:
    async with pair.generate(PROMPT, options) as text:
        await anext(text)


@_way
async def _cancelled_task(pair: AsyncPair, options: Options) -> None:
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in pair.generate(PROMPT, options):
            begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@_way
async def _cancelled_before_it_began(pair: AsyncPair, options: Options) -> None:
    task = asyncio.create_task(pair.generate(PROMPT, options).read())
    await asyncio.sleep(0)  # lets it begin to wait
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@MODES
def test_text_that_ends_early_makes_room_for_the_next(
    verifier: Verifier, way: Callable[[AsyncPair, Options], Awaitable[None]], mode: Mode
) -> None:
    async def work() -> None:
        async with AsyncPair(verifier.url, TOY) as pair:
            for _ in range(2):
                await way(pair, Options(max_tokens=900, mode=mode))
                assert verifier.sessions == 0
            assert (await pair.generate(PROMPT, Options(max_tokens=6)).read()).token_ids == toy_text(6)

    _run(work())


def test_pair_is_closed_if_its_making_was_cancelled(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, closed = threading.Event(), threading.Event(), threading.Event()

    class Slow(Pair):
        def __init__(self, *given: Any, **named: Any) -> None:
            begun.set()
            assert go.wait(10.0)
            super().__init__(*given, **named)

        def close(self) -> None:
            super().close()
            closed.set()

    monkeypatch.setattr(async_pair, "Pair", Slow)

    async def work() -> None:
        making = asyncio.create_task(AsyncPair(verifier.url, TOY).__aenter__())
        await asyncio.to_thread(begun.wait, 10.0)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        assert not closed.is_set()
        go.set()
        assert await asyncio.to_thread(closed.wait, 10.0)

    _run(work())


def test_event_loop_is_free_during_a_draft_step(verifier: Verifier) -> None:
    """The drafter waits for an event that only the event loop sets."""
    drafting, go = threading.Event(), threading.Event()

    def next_token(tokens: Sequence[int]) -> int:
        drafting.set()
        assert go.wait(10.0)
        return 0

    async def work() -> None:
        drafter = Custom(lambda vocabulary, sampling: Scenario(next_token))
        async with AsyncPair(verifier.url, drafter) as pair:
            options = Options(max_tokens=12, lockstep=True, draft_n=1, lookup=False)
            reading = asyncio.create_task(pair.generate(PROMPT, options).read())
            while not drafting.is_set():
                await asyncio.sleep(0)
            go.set()
            assert (await reading).token_ids == toy_text(12)

    _run(work())


def test_pair_used_outside_of_its_block_raises_runtime_error(verifier: Verifier) -> None:
    async def work() -> None:
        pair = AsyncPair(verifier.url, Lookup())
        for complaint in ("this pair is not open yet: use it in an `async with` block", "this pair is closed"):
            with pytest.raises(RuntimeError, match=complaint):
                pair.generate(PROMPT)
            with pytest.raises(RuntimeError, match=complaint):
                await pair.encode(PROMPT)
            with pytest.raises(RuntimeError, match=complaint):
                await pair.chat(PROMPT)
            with pytest.raises(RuntimeError, match=complaint):
                _ = pair.target
            if complaint != "this pair is closed":
                async with pair:
                    assert pair.target.name == "scripted-1"

    _run(work())
