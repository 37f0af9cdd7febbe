"""Controllers and a scheduler in virtual time, over thousands of random worlds: the text is always the target's.

The decisions on both ends, the acceptance, the slots and the draft models are the real ones. Networks with delays,
losses and outages, the costs and the speeds are random. The verifier's invariants are checked after every event, and
the number of events is bounded, which detects deadlocks and endless loops.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from backends.scripted import END, Script
from simulator.virtual.drafter import VirtualDrafter
from simulator.virtual.network import Network
from simulator.virtual.world import World
from specpair.drafters.draft_model import ModelDrafter
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import plain
from tests.specpair.speculation.policy.virtual_pair import Toy

WORLDS, PARTS, QUICK = 2000, 20, 3  # the first parts are part of `make test`
MOST_EVENTS = 20_000  # the busiest of these worlds needs a fifth of it


@dataclass
class RandomWorld:
    """A random world, with its drafters and the text that each of them has to write."""

    world: World
    pairs: list[tuple[VirtualDrafter, list[int], list[int]]] = field(default_factory=list)  # with prompt and text

    @property
    def finished(self) -> bool:
        return all(pair.finished for pair, _, _ in self.pairs)


def _mechanisms(rng: random.Random) -> Mechanisms:
    drawn = Mechanisms(rng.random() < 0.7, rng.randint(1, 6), rng.random() < 0.5, rng.random() < 0.5)
    return replace(LOCKSTEP if rng.random() < 0.2 else drawn, trees=rng.random() < 0.6)


def _network(rng: random.Random) -> Network:
    broken = rng.uniform(0.0, 0.5)
    return Network(
        rtt=rng.choice([0.0, rng.uniform(0.0, 0.1)]),
        jitter=rng.choice([0.0, 0.0, rng.uniform(0.0, 0.05)]),
        loss=rng.choice([0.0, 0.0, rng.uniform(0.0, 0.3)]),
        outages=rng.choice([(), (), ((broken, broken + rng.uniform(0.0, 2.0)),)]),
    )


def _held_up(rng: random.Random, seed: int) -> Callable[[], float]:
    """Threads that wait for a core now and then, for longer than a pass takes."""
    chance, waits = rng.choice([0.0, 0.0, 0.02, 0.2]), random.Random(seed)
    return lambda: waits.uniform(0.0, 0.3) if waits.random() < chance else 0.0


def _random_world(seed: int) -> RandomWorld:
    rng = random.Random(seed)
    temperature = rng.choice([0.0, 0.8])
    script = Script(seed=rng.randrange(3), end_bias=rng.choice([-100.0, -100.0, 5.0]))
    target = Toy(
        script,
        slots=rng.randint(1, 4),
        context_length=rng.choice([40, 1024]),
        max_batch_tokens=rng.choice([64, 512]),
    )
    step, wider = rng.choice([0.002, 0.02, 0.1]), rng.choice([0.0, 0.01, 0.3])
    world = World(
        target,
        lambda plan: step * (1.0 + wider * (plan.tokens - 1)),
        check=True,
        max_drafts=rng.choice([2, 16, 64]),
    )
    random_world = RandomWorld(world)
    for number in range(rng.randint(1, 3)):
        sampling = Sampling(seed=rng.randrange(100), temperature=temperature)
        agreement = rng.choice([0.0, 1.0, rng.random()])
        draft_model = Toy(
            Script(seed=script.seed, end_bias=script.end_bias, agreement=agreement),
            slots=rng.randint(1, 6),
            context_length=rng.choice([16, 1024, 1024]),
            max_batch_tokens=rng.choice([8, 512, 512]),
        )
        draft, row = rng.choice([0.0001, 0.005, 0.05]), rng.choice([0.0, 0.3, 1.0])
        prompt = [256, *rng.choices(range(256), k=rng.randint(0, 12))]
        count = rng.choice([1, 2, rng.randint(3, 50)])

        def draft_time(rows: int, draft: float = draft, row: float = row) -> float:
            return draft * (1.0 + row * (rows - 1))

        pair = VirtualDrafter(
            world,
            prompt,
            sampling,
            ModelDrafter(draft_model, sampling),
            draft_time,
            max_tokens=count,
            network=_network(rng),
            overhead=rng.choice([0.0, 0.001]),
            length=rng.choice([None, None, 0, 1, rng.randint(2, 12)]),
            mechanisms=_mechanisms(rng),
            held_up=_held_up(rng, seed),
            seed=seed * 10 + number,
            name=f"drafter {number}",
        )
        expected = plain(Toy(script, context_length=target.context_length), prompt, count, sampling)
        random_world.pairs.append((pair, prompt, expected))
        world.at(rng.choice([0.0, rng.uniform(0.0, 0.5)]), pair.start)
    return random_world


def _run(random_world: RandomWorld) -> None:
    """Run until all texts are finished, and on until no events are left; then check the results."""
    events = 0

    def over() -> bool:
        nonlocal events
        events += 1
        assert events < MOST_EVENTS, f"endless loop at {random_world.world.now:.3f} s"
        return random_world.finished

    random_world.world.run(done=over)
    assert random_world.finished, "deadlock"
    passes = len(random_world.world.plans)
    random_world.world.run(done=lambda: over() and False)
    assert len(random_world.world.plans) <= passes + 1, "no pass was computed without need, except one that had begun"
    for pair, prompt, expected in random_world.pairs:
        _check(pair, prompt, expected)


def _check(pair: VirtualDrafter, prompt: list[int], expected: list[int]) -> None:
    assert pair.controller is not None
    assert pair.controller.known == pair.session.tokens == prompt + expected
    assert pair.session.finish_reason == ("stop" if expected[-1] == END else "length")
    course, own = pair.course, pair.session.details.sources.count("t")
    assert len(course.times) == len(expected) - 1 and course.times == sorted(course.times)
    assert 0 <= course.accepted <= course.judged
    assert course.accepted + own <= len(expected) - 1, "each token has one source; the first comes from the prefill"
    assert 0 <= pair.controller.text.next_draft_ready <= pair.controller.text.mispredicted <= len(expected) - 1


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.slow if part >= QUICK else ()) for part in range(PARTS)]
)
def test_every_text_is_finished_and_the_targets_in_any_world(part: int) -> None:
    for seed in range(part, WORLDS, PARTS):
        try:
            _run(_random_world(seed))
        except BaseException as error:
            error.add_note(f"in world {seed}")
            raise
