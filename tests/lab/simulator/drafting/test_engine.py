"""Draft engines in virtual time: who shares a pass, who waits, what is kept; and what a drafter has its engine read."""

import random
from collections.abc import Sequence

import pytest

from lab.simulator.costs.cost import SequencePass
from lab.simulator.drafting.drafter import EngineDrafter
from lab.simulator.drafting.engine import DraftEngine
from lab.simulator.fleet.text import Agreeing, Choices, RuleTarget, Text
from lab.simulator.virtual.agreement import constant
from lab.simulator.virtual.world import EventLoop, World
from specpair.drafters.run.executors import READ_CHUNK
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms


class Passes:
    """A cost of one second a pass that keeps what the passes were."""

    def __init__(self) -> None:
        self.batches: list[list[SequencePass]] = []

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        self.batches.append([*sequences])
        return 1.0


def test_calls_that_come_during_a_pass_share_the_next_one() -> None:
    loop, cost, done = EventLoop(), Passes(), list[tuple[str, float]]()
    engine = DraftEngine(loop, cost, batch_tokens=4)
    cost.batches.clear()

    def call(name: str, tokens: int) -> None:
        engine.run([(tokens, 10)], lambda: done.append((name, loop.now)))

    for at, name, tokens in ((0.0, "a", 1), (0.2, "b", 1), (0.4, "c", 4), (0.6, "d", 2)):
        loop.at(at, lambda name=name, tokens=tokens: call(name, tokens))  # type: ignore[misc]
    loop.run()
    assert done == [("a", 1.0), ("b", 2.0), ("d", 2.0), ("c", 3.0)], "c does not fit beside b, and d does"
    assert cost.batches == [[(1, 10)], [(1, 10), (2, 10)], [(4, 10)]]
    assert (engine.calls, engine.passes) == (4, 3)


def test_a_call_that_finds_the_engine_idle_runs_alone() -> None:
    """So two texts in step alternate: each has its pass while the other one reacts."""
    loop, cost = EventLoop(), Passes()
    engine = DraftEngine(loop, cost)
    cost.batches.clear()
    for text in (1, 2):
        loop.at(0.0, lambda text=text: engine.run([(1, text)], lambda: None))  # type: ignore[misc]
    loop.run()
    assert cost.batches == [[(1, 1)], [(1, 2)]]


def test_slots_are_lent_in_order_and_keep_texts() -> None:
    engine, begun = DraftEngine(EventLoop(), Passes(), slots=2), list[str]()

    def text(name: str, wanted: bool = True) -> None:
        def begin() -> bool:
            begun.append(name)
            return wanted

        engine.lend(begin)

    text("a")
    text("b")
    text("c", wanted=False)
    text("d")
    assert begun == ["a", "b"]
    engine.keep("a", 30)
    engine.free()
    assert begun == ["a", "b", "c", "d"], "c was not wanted any more, so its slot is that of d"
    engine.keep("b", 40)
    engine.keep("d", 50)
    assert (engine.held("a"), engine.held("b"), engine.held("d")) == (0, 40, 50), "two slots keep two texts"


@pytest.mark.parametrize("overlap", [True, False])
def test_a_drafter_reads_the_prompt_first(overlap: bool) -> None:
    """In chunks beside the prefill, or in the first draft step; a part that is held is not read again."""
    text = Text([*range(100)] * 12, random.Random)
    cost = Passes()
    world = World(RuleTarget(slots=1, context_length=4096), lambda plan: 1.0)
    engine = DraftEngine(world, cost)
    cost.batches.clear()
    pair = EngineDrafter(
        world,
        text.tokens(0, text.prompt_len),
        Agreeing(Choices(text, constant(1.0))),
        engine,
        100,
        lambda committed: None,
        max_tokens=6,
        length=3,
        mechanisms=Mechanisms() if overlap else LOCKSTEP,
    )
    pair.start()
    world.run(done=lambda: pair.finished)
    reading = [batch[0] for batch in cost.batches if batch[0][0] > 100]
    assert reading == ([(READ_CHUNK, 100), (READ_CHUNK, 612)] if overlap else [(1101, 100)])
    assert all(len(text.tokens(0, 9999)) >= start + new for (new, start), *_ in cost.batches)
