"""Places for texts: never too many, clients by turns, and beyond the queue a refusal with the time to wait."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.openai_api.places import QueuedText, TextQueue
from specpair.protocol.errors import Overloaded, VerifierAway


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.integers(1, 3), st.integers(0, 3), st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=30))
def test_texts_begin_in_order_and_never_too_many_at_a_time(count: int, queue: int, steps: list[int | None]) -> None:
    """A step enters a text (None), or has one of those that are there leave."""
    places, there = TextQueue(lambda: count, lambda: queue, Clock()), list[QueuedText]()
    for step in steps:
        if step is None:
            if len(there) >= count + queue:
                with pytest.raises(Overloaded):
                    places.enter()
            else:
                there += places.enter()
        elif step < len(there):
            place = there.pop(step)
            place.leave()
            place.leave()
        begun = [place.began is not None for place in there]
        assert begun == sorted(begun, reverse=True), "one began before an earlier one"
        assert sum(begun) == min(count, len(there)) == places.taken
        assert places.waiting == len(there) - sum(begun)


def test_clients_take_turns() -> None:
    places = TextQueue(lambda: 1, lambda: 9, Clock())
    (running,) = places.enter(1, "many")
    waiting = [*places.enter(3, "many"), *places.enter(2, "few"), *places.enter()]
    began = [running]
    while len(began) < 7:
        began[-1].leave()
        began += [place for place in waiting if place.began is not None and place not in began]
    assert [waiting.index(place) for place in began[1:]] == [0, 3, 5, 1, 4, 2]


def test_the_wait_is_that_of_the_texts_ahead() -> None:
    clock = Clock()
    places = TextQueue(lambda: 2, lambda: 2, clock)
    (first,) = places.enter()
    clock.now = 6.0
    first.leave()
    for _ in range(4):
        places.enter()
    with pytest.raises(Overloaded) as refused:
        places.enter()
    assert refused.value.details["retry_after"] == 9  # three texts of 6 s, two at a time


def test_a_text_waits_for_its_turn() -> None:
    async def scenario() -> None:
        places = TextQueue(lambda: 1, lambda: 1, Clock())
        first, second = places.enter(2)
        await first.turn(lambda _: None)
        waiting = asyncio.create_task(second.turn(lambda _: None))
        await asyncio.sleep(0)
        assert not waiting.done()
        first.leave()
        await waiting

    asyncio.run(scenario())


def test_a_text_waits_no_longer_than_it_makes_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.openai_api.places.LOOKS_APART", 0.001)
    waits: list[float] = []

    def over(waited: float) -> VerifierAway | None:
        waits.append(waited)
        clock.now += 4.0
        return VerifierAway("it is away") if waited >= 8.0 else None

    async def scenario() -> None:
        places = TextQueue(lambda: 1, lambda: 1, clock)
        first, second = places.enter(2)
        with pytest.raises(VerifierAway):
            await second.turn(over)
        second.leave()
        assert (places.waiting, places.taken) == (0, 1)
        await first.turn(over)

    clock = Clock()
    asyncio.run(scenario())
    assert waits == [0.0, 4.0, 8.0]
