"""A feed of what happens: how many may listen, what one that is slow misses, and its end."""

import asyncio

import pytest

from specpair.http_service.replies.events import MOST_READERS, MOST_WAITING, EventFeed, FeedReader
from specpair.protocol.errors import Overloaded


def test_readers_are_few_and_forget_the_oldest() -> None:
    async def listen() -> None:
        feed, reader = EventFeed[int](), FeedReader[int]()
        feed.put(-1)  # nobody listens
        with feed.heard_by(reader):
            for number in range(MOST_WAITING + 3):
                feed.put(number)
            assert await reader.next(10) == [*range(3, MOST_WAITING + 3)]
            others = [feed.heard_by(FeedReader[int]()) for _ in range(MOST_READERS - 1)]
            for each in others:
                each.__enter__()
            with pytest.raises(Overloaded, match="16 pages listen already"), feed.heard_by(FeedReader[int]()):
                pass
            for each in others:
                each.__exit__(None, None, None)
            assert feed.heard
            feed.close()
            await reader.rest(1e6)  # returns at once
            assert reader.closed and await reader.next(10) == []
        assert not feed.heard

    asyncio.run(listen())
