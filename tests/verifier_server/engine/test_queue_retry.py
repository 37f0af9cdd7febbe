"""`retry_after` of a full queue: close to the time at which there is room again. Clients share the queue."""

from collections.abc import Sequence

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.protocol.errors import Overloaded
from tests.verifier_server.engine.virtual import World, opened
from verifier_server.engine.composer import BatchPlan
from verifier_server.engine.queue import PER_SESSION
from verifier_server.sessions import Session


def seconds(tokens: int) -> float:
    return 4.0 + 0.04 * tokens


def slow(plan: BatchPlan) -> float:
    """Seconds of a pass, large enough for `retry_after` in whole seconds: 4, and 40 ms per token."""
    return seconds(plan.tokens)


def make_world(slots: int, max_queue: int) -> World:
    backend = ScriptedBackend(Script(seed=3), slots=slots, context_length=4096)
    pass_times = [seconds(tokens + 1) for tokens in range(17)]
    return World(backend, slow, max_queue=max_queue, pass_times=pass_times)


def promised_and_waited(world: World, waiting: Sequence[Session], refused: Session) -> tuple[int, float]:
    """The `retry_after` of `refused` while `waiting` wait, and the seconds until the first of these was answered."""
    asked, answered = world.now, list[float]()
    for session in waiting:
        world.ask(session, drafts=[1, 2], then=lambda _: answered.append(world.now))
    with pytest.raises(Overloaded) as error:
        world.ask(refused)
    world.run(done=lambda: bool(answered))
    return error.value.details["retry_after"], answered[0] - asked


def prompt(length: int, first: int) -> list[int]:
    return [256, first, *(number % 200 for number in range(length - 2))]


@pytest.mark.parametrize("lengths", [(1000,) * 4, (300, 900, 900, 900), (900, 900, 900, 300), (100,) * 4, (10,) * 4])
@pytest.mark.parametrize("slots", [2, 8])
def test_retry_after_while_prompts_are_prefilled(slots: int, lengths: tuple[int, ...]) -> None:
    world = make_world(slots, max_queue=4)
    waiting = [world.open(prompt(length, number)) for number, length in enumerate(lengths)]
    promised, waited = promised_and_waited(world, waiting, world.open([256, 99]))
    assert 0.75 * waited <= promised <= 1.25 * waited + 1, (promised, waited)


@pytest.mark.parametrize("slots", [2, 8])
def test_retry_after_while_drafts_wait(slots: int) -> None:
    world = make_world(slots, max_queue=6)
    waiting = [opened(world, prompt(20, number)) for number in range(6)]
    promised, waited = promised_and_waited(world, waiting, world.open([256, 99]))
    assert 0.75 * waited <= promised <= 1.25 * waited + 1, (promised, waited)


def test_retry_after_of_a_session_at_its_bound() -> None:
    """It has room as soon as one of its own requests is answered, whatever other sessions wait for."""
    world = make_world(8, max_queue=256)
    busy, other = world.open(prompt(2000, 1)), opened(world, prompt(20, 2))
    asked, answered = world.now, list[float]()
    for _ in range(PER_SESSION):
        world.ask(busy, then=lambda _: answered.append(world.now))

    def again(_answer: object = None) -> None:
        world.ask(other, then=again)

    again()
    with pytest.raises(Overloaded) as error:
        world.ask(busy)
    world.run(done=lambda: bool(answered))
    promised, waited = error.value.details["retry_after"], answered[0] - asked
    assert waited > 100.0
    assert 0.75 * waited <= promised <= 1.25 * waited, (promised, waited)


def of_client(world: World, name: str, number: int) -> Session:
    """A new session of the client `name`."""
    session = world.open(prompt(20, number))
    session.client = name or None
    return session


def test_clients_without_a_name_are_not_limited() -> None:
    world = make_world(2, max_queue=8)
    for number in range(8):
        world.ask(of_client(world, "", number))


def test_another_client_gets_the_next_turn() -> None:
    world = make_world(1, max_queue=64)
    order: list[str] = []
    for number in range(6):
        world.ask(of_client(world, "a", number), then=lambda _: order.append("a"))
    world.ask(of_client(world, "b", 9), then=lambda _: order.append("b"))
    world.run(done=lambda: len(order) == 7)
    assert order.index("b") <= 2, order
