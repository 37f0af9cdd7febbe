"""Draining ends when no text is under way, or when the grace is over; it asks again only when something changed."""

import asyncio
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

from specpair.http_service.shutdown import Draining


class Texts:
    """Says how long texts are under way, and counts how often it was asked."""

    def __init__(self) -> None:
        self.seconds, self.asked = inf, 0

    def __call__(self) -> float:
        self.asked += 1
        return self.seconds


def run(scene: Callable[[Texts, asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(20):
            await scene(Texts(), asyncio.Event())

    asyncio.run(within())


def test_it_ends_when_a_client_was_silent_long_enough() -> None:
    async def scene(texts: Texts, ended: asyncio.Event) -> None:
        texts.seconds = 0.01
        draining = Draining(1000.0, texts)
        draining.begin(ended.set)
        assert not ended.is_set()
        texts.seconds = 0.0
        await ended.wait()
        assert texts.asked == 2

    run(scene)


def test_it_ends_when_the_grace_is_over_and_only_once() -> None:
    async def scene(texts: Texts, ended: asyncio.Event) -> None:
        times = list[int]()

        def end() -> None:
            times.append(1)
            ended.set()

        draining = Draining(0.01, texts)
        draining.begin(end)
        await ended.wait()
        texts.seconds = 0.0
        draining.changed()
        assert times == [1]

    run(scene)
