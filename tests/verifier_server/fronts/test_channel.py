"""Messages between a front and the engine's process."""

import asyncio
import socket
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier_server.fronts.channel import Channel, Part, Wanted, first_message, packed

MESSAGES = st.lists(st.builds(Part, st.integers(0, 2**31), st.binary(max_size=300), st.booleans()), max_size=8)


@given(MESSAGES, st.lists(st.integers(0, 2500), max_size=8))
def test_messages_arrive_whole_and_in_order_however_they_are_cut(messages: list[Part], cuts: list[int]) -> None:
    came: list[Any] = []
    channel = Channel(came.append, lambda: None)
    sent = b"".join(map(packed, messages))
    for begin, end in pairwise(sorted({0, len(sent), *(min(cut, len(sent)) for cut in cuts)})):
        channel.data_received(sent[begin:end])
    assert came == messages


def test_each_end_hears_when_the_other_is_gone() -> None:
    async def run() -> list[Any]:
        came, lost = list[Any](), asyncio.Event()
        one, other = socket.socketpair()
        near = await Channel.over(one, came.append, lost.set)
        far = await Channel.over(other, came.append, lambda: None)
        far.send(Wanted(7))
        far.close()
        await lost.wait()
        near.send(Wanted(8))  # to nobody
        return came

    assert asyncio.run(run()) == [Wanted(7)]


def test_the_first_message_is_read_alone() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(packed(Wanted(1)) + packed(Wanted(2)))
        assert (first_message(other), first_message(other)) == (Wanted(1), Wanted(2))
        one.close()
        with pytest.raises(ConnectionError, match="is gone"):
            first_message(other)
