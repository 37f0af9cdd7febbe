"""Drafters and a verifier in virtual time: networks delay, lose and reorder messages, and the verifier is killed.

The decisions on both ends, the acceptance, the slots and the draft models are the real ones. Delays, losses, cuts,
repeated requests, kills, costs and speeds are drawn by the seed. The verifier's bookkeeping is checked after every
event, and the number of events is bounded, which detects deadlocks and endless loops.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from backends.scripted import END, Script
from lab.simulator.virtual.drafter import VirtualDrafter
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.world import EventLoop, Verifier
from specpair.drafters.draft_model import ModelDrafter
from specpair.protocol.errors import SpecPairError
from specpair.speculation.acceptance.token_details import SELF_CONTINUED
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import plain
from tests.specpair.speculation.policy.virtual_pair import Toy
from verifier_server.engine.requests import Request

MOST_EVENTS = 40_000  # the busiest world needs a fifth of it


class Killable(EventLoop):
    """A clock, and a verifier that can be killed: another one, which knows no session, takes its place."""

    looks = True

    def __init__(self, make: Callable[[], Toy], cost: Callable[[int], float], max_drafts: int) -> None:
        super().__init__()
        self._make, self._cost, self._max_drafts = make, cost, max_drafts
        self.passes = 0
        self.verifier = self._another()

    def _another(self) -> Verifier:
        def counted(_began: float, _plan: object) -> None:
            self.passes += 1

        how = {"check": True, "on_pass": counted, "max_drafts": self._max_drafts}
        return Verifier(self, self._make(), lambda plan: self._cost(plan.tokens), **how)  # type: ignore[arg-type]

    def kill(self) -> None:
        self.verifier.stopped = True
        self.verifier = self._another()

    def look(self) -> None:
        self.verifier.look()


class Link:
    """What one life of a drafter sees of the world: a `Place` at the verifier of the time. Once it is cut, nothing
    happens for that life any more."""

    def __init__(self, world: Killable, repeats: Callable[[], float | None]) -> None:
        """`repeats`: seconds after which a request comes a second time; None: it does not."""
        self._world, self._repeats, self.verifier = world, repeats, world.verifier
        self.cut = False

    @property
    def now(self) -> float:
        return self._world.now

    @property
    def backend(self) -> Toy:
        assert isinstance(self.verifier.backend, Toy)
        return self.verifier.backend

    @property
    def scheduler(self) -> "Link":
        return self

    @property
    def max_drafts(self) -> int:
        return self.verifier.scheduler.max_drafts

    def at(self, when: float, do: Callable[[], object]) -> None:
        self._world.at(when, lambda: None if self.cut else do())

    def give_up(self, error: SpecPairError) -> None:
        raise error

    def submit(self, request: Request, now: float) -> None:
        """Take in a request that has arrived. One that was sent to a dead verifier is lost."""
        if self.verifier.stopped:
            return
        self.verifier.scheduler.submit(request, now)
        if (after := self._repeats()) is not None:
            again = Request(request.session, request.draft, lambda _: None, policy=request.policy)
            self._world.at(now + after, lambda: self._repeat(again))

    def _repeat(self, request: Request) -> None:
        if not self.verifier.stopped and not request.session.gone:
            self.verifier.scheduler.submit(request, self.now)


@dataclass
class Text:
    """A text that a drafter writes, by one life after the other."""

    begin: Callable[[Link, int], VirtualDrafter]  # a life, at a link, by its number
    link: Callable[[], Link]
    prompt: list[int]
    expected: list[int]
    lives: list[VirtualDrafter] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    @property
    def known(self) -> list[int]:
        """What the drafter knows."""
        for life in reversed(self.lives):
            if life.controller is not None:
                return life.controller.known
        return self.prompt

    @property
    def finished(self) -> bool:
        return bool(self.lives) and self.lives[-1].finished

    def live(self) -> None:
        """Begin, or go on after the tokens that are known."""
        known = self.known[len(self.prompt) :]
        if self.finished:
            return
        if self.links:
            self.links[-1].cut = True
        self.links.append(self.link())
        life = self.begin(self.links[-1], len(self.lives))
        if known:
            life.session.resume(known)
        self.lives.append(life)
        life.start()


@dataclass
class RandomWorld:
    """A world, and the texts that are written in it."""

    world: Killable
    texts: list[Text] = field(default_factory=list)
    kills: int = 0

    @property
    def finished(self) -> bool:
        return all(text.finished for text in self.texts)

    def kill(self, rng: random.Random) -> None:
        """Kill the verifier. Each drafter learns of it in its own time, and begins another life."""
        self.kills += 1
        self.world.kill()
        for text in self.texts:
            if text.lives:
                self.world.at(self.world.now + rng.choice([0.0, rng.uniform(0.0, 0.3)]), text.live)


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


def _repeats(rng: random.Random, seed: int) -> Callable[[], float | None]:
    """Requests that arrive twice, as a proxy repeats them: at once, or when later ones have been answered."""
    chance, draws = rng.choice([0.0, 0.0, 0.1, 0.5]), random.Random(seed)
    return lambda: draws.choice([0.0, draws.uniform(0.0, 1.0)]) if draws.random() < chance else None


def drawn(seed: int) -> RandomWorld:
    """The world of this seed."""
    rng = random.Random(seed)
    temperature = rng.choice([0.0, 0.8])
    script = Script(seed=rng.randrange(3), end_bias=rng.choice([-100.0, -100.0, 5.0]))
    slots, context, batch = rng.randint(1, 4), rng.choice([40, 1024]), rng.choice([64, 512])
    step, wider = rng.choice([0.002, 0.02, 0.1]), rng.choice([0.0, 0.01, 0.3])
    world = Killable(
        lambda: Toy(script, slots=slots, context_length=context, max_batch_tokens=batch),
        lambda tokens: step * (1.0 + wider * (tokens - 1)),
        max_drafts=rng.choice([2, 16, 64]),
    )
    random_world = RandomWorld(world)
    for number in range(rng.randint(1, 3)):
        text = _text(rng, world, script, temperature, context, 10 * seed + number)
        random_world.texts.append(text)
        world.at(rng.choice([0.0, rng.uniform(0.0, 0.5)]), text.live)
    for _ in range(rng.choice([0, 0, 1, rng.randint(1, 6)])):
        world.at(rng.uniform(0.0, 1.5), lambda: random_world.kill(rng))
    return random_world


def _text(rng: random.Random, world: Killable, script: Script, temperature: float, context: int, seed: int) -> Text:
    sampling = Sampling(seed=rng.randrange(100), temperature=temperature)
    draft_model = Toy(
        replace(script, agreement=rng.choice([0.0, 1.0, rng.random()])),
        slots=rng.randint(1, 6),
        context_length=rng.choice([16, 1024, 1024]),
        max_batch_tokens=rng.choice([8, 512, 512]),
    )
    draft, row = rng.choice([0.0001, 0.005, 0.05]), rng.choice([0.0, 0.3, 1.0])
    prompt = [256, *rng.choices(range(256), k=rng.randint(0, 12))]
    count = rng.choice([1, 2, rng.randint(3, 50)])
    network, overhead, mechanisms = _network(rng), rng.choice([0.0, 0.001]), _mechanisms(rng)
    length, held_up = rng.choice([None, None, 0, 1, rng.randint(2, 12)]), _held_up(rng, seed)
    repeats = _repeats(rng, seed)

    def begin(link: Link, life: int) -> VirtualDrafter:
        return VirtualDrafter(
            link,
            prompt,
            sampling,
            ModelDrafter(draft_model, sampling),
            lambda rows: draft * (1.0 + row * (rows - 1)),
            max_tokens=count,
            network=network,
            overhead=overhead,
            length=length,
            mechanisms=mechanisms,
            held_up=held_up,
            seed=seed,
            name=f"{seed}, life {life}",
        )

    expected = plain(Toy(script, context_length=context), prompt, count, sampling)
    return Text(begin, lambda: Link(world, repeats), prompt, expected)


def run(seed: int) -> str:
    """Run the world of a seed until all texts are finished, and on until nothing is left to happen; check the results.

    Returns what happened, the same each time.
    """
    random_world = drawn(seed)
    world, events = random_world.world, 0

    def over() -> bool:
        nonlocal events
        events += 1
        assert events < MOST_EVENTS, f"endless loop at {world.now:.3f} s"
        return random_world.finished

    world.run(done=over)
    assert random_world.finished, f"deadlock at {world.now:.3f} s"
    ended, passes = world.now, world.passes
    world.run(done=lambda: over() and False)
    # A drafter that learns late of an earlier kill leaves a session behind, which self-continues for a while.
    needless = 0 if random_world.kills else world.passes - passes
    assert needless <= 1, "passes were computed without need, beside one that had begun"
    for text in random_world.texts:
        _check(text, killed=random_world.kills > 0)
    assert world.verifier.scheduler.wake_at is None, "the verifier is not idle"
    return f"{ended:.6f} s, {events} events, {world.passes} passes, {random_world.kills} kills"


def _check(text: Text, *, killed: bool) -> None:
    expected, before = text.expected, text.prompt
    for life in text.lives:
        if life.controller is None:  # it ended before it knew anything
            continue
        known = life.controller.known
        assert known[: len(before)] == before, f"{known} does not go on with {before}"
        before = known
    assert before == text.prompt + expected, f"{before[len(text.prompt) :]} is not the target's own {expected}"
    last = text.lives[-1]
    assert last.controller is not None and last.session.tokens == text.prompt + expected
    assert last.session.finish_reason == ("stop" if expected[-1] == END else "length")
    if killed:
        return
    course, own = last.course, last.session.details.sources.count(SELF_CONTINUED)
    assert len(course.times) == len(expected) - 1 and course.times == sorted(course.times)
    assert 0 <= course.accepted <= course.judged
    assert course.accepted + own <= len(expected) - 1, "each token has one source; the first comes from the prefill"
    controlled: Sequence[int] = (last.controller.text.next_draft_ready, last.controller.text.mispredicted)
    assert 0 <= controlled[0] <= controlled[1] <= len(expected) - 1
