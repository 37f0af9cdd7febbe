"""Drafters and a verifier in virtual time: networks delay, lose and reorder messages, and the verifier is killed.

The decisions on both ends, the acceptance, the slots and the draft models are the real ones. Delays, losses, cuts,
repeated requests, kills, costs and speeds are drawn by the seed. The verifier's bookkeeping is checked after every
event, and the number of events is bounded, which detects deadlocks and endless loops.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from backends.scripted import END, Script
from lab.simulator.virtual.drafter import VirtualDrafter
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.world import EventLoop, Verifier
from specpair.drafters.base import Expansion
from specpair.drafters.composed_drafter import ComposedDrafter, can_compose
from specpair.drafters.draft_model import ModelDrafter
from specpair.protocol.errors import SpecPairError
from specpair.speculation.drafting.composed_context import ContextSizes
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import plain
from tests.specpair.speculation.policy.virtual_pair import Toy
from verifier_server.engine.arrived_drafts import Request

PARTS = ContextSizes(sink=1, window=2, most_window=4, before=1, after=2, pieces=2, match=1, sure=1, chunk=2, late=2)
MOST_EVENTS = 40_000  # the busiest world needs a fifth of it


class IdlingDrafter(ComposedDrafter):
    """Has time for some passes between two draft steps, most of the times."""

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        passes = iter([False] * (len(text) % 4))
        self.read_between_steps(lambda: next(passes, True))
        return super().expand(text, tails, runners_up)


class RandomWorld(EventLoop):
    """The world of a seed: a clock, a verifier that can be killed, and the texts that are written.

    In place of a killed verifier comes another one, which knows no session.
    """

    looks = True

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = rng = random.Random(seed)
        self.temperature = rng.choice([0.0, 0.8])
        few = 24 if seed % 2 else None  # different tokens: most come again, so that pieces are read
        self.head_depth, agreement = random_head(seed)
        self.script = Script(
            seed=rng.randrange(3),
            end_bias=rng.choice([-100.0, -100.0, 5.0]),
            support=few,
            head_agreement=agreement,
        )
        self.slots, self.context, self.batch = rng.randint(1, 4), rng.choice([40, 1024]), rng.choice([64, 512])
        self._step, self._wider = rng.choice([0.002, 0.02, 0.1]), rng.choice([0.0, 0.01, 0.3])
        self._max_drafts = rng.choice([2, 16, 64])
        self.passes = self.kills = 0
        self.verifier = self._another()
        self.texts = [Text(self, 10 * seed + number) for number in range(rng.randint(1, 3))]
        for text in self.texts:
            self.at(rng.choice([0.0, rng.uniform(0.0, 0.5)]), text.live)
        for _ in range(rng.choice([0, 0, 1, rng.randint(1, 6)])):
            self.at(rng.uniform(0.0, 1.5), self._kill)

    def _another(self) -> Verifier:
        def counted(_began: float, _plan: object) -> None:
            self.passes += 1

        return Verifier(
            self,
            Toy(
                self.script,
                slots=self.slots,
                context_length=self.context,
                max_batch_tokens=self.batch,
                head_depth=self.head_depth,
            ),
            lambda plan: self._step * (1.0 + self._wider * (plan.tokens - 1)),
            check=True,
            on_pass=counted,
            max_drafts=self._max_drafts,
            pass_times=[self._step * (1.0 + self._wider * more) for more in range(17)] if self.head_depth else (),
        )

    def look(self) -> None:
        self.verifier.look()

    @property
    def finished(self) -> bool:
        return all(text.finished for text in self.texts)

    def _kill(self) -> None:
        """Kill the verifier. Each drafter notices after a delay of its own, and begins another life."""
        self.kills += 1
        self.verifier.stopped = True
        self.verifier = self._another()
        for text in self.texts:
            if text.lives:
                self.at(self.now + self.rng.choice([0.0, self.rng.uniform(0.0, 0.3)]), text.live)


class Link:
    """A `ReachableVerifier`: the link of one life of a drafter. Once the link is cut, nothing happens there."""

    def __init__(self, world: RandomWorld, repeats: Callable[[], float | None]) -> None:
        """`repeats`: seconds after which a request comes a second time; None: it does not."""
        self._world, self._repeats, self._verifier = world, repeats, world.verifier
        self.scheduler, self.backend, self.cut = self, self._verifier.backend, False
        self.max_drafts = self._verifier.scheduler.max_drafts

    @property
    def now(self) -> float:
        return self._world.now

    def at(self, when: float, do: Callable[[], object]) -> None:
        self._world.at(when, lambda: None if self.cut else do())

    def give_up(self, error: SpecPairError) -> None:
        raise error

    def submit(self, request: Request, now: float) -> None:
        """Take in a request that has arrived. One that was sent to a dead verifier is lost."""
        if self._verifier.stopped:
            return
        self._verifier.scheduler.submit(request, now)
        if (after := self._repeats()) is not None:
            again = Request(request.session, request.draft, lambda _: None, policy=request.policy)
            self._world.at(now + after, lambda: self._repeat(again))

    def _repeat(self, request: Request) -> None:
        if not self._verifier.stopped and not request.session.gone:
            self._verifier.scheduler.submit(request, self.now)


class Text:
    """A text that a drafter writes, by one life after the other."""

    def __init__(self, world: RandomWorld, seed: int) -> None:
        self._world, self._seed, rng = world, seed, world.rng
        self._sampling = Sampling(seed=rng.randrange(100), temperature=world.temperature)
        self._draft_model = Toy(
            replace(world.script, agreement=rng.choice([0.0, 1.0, rng.random()])),
            slots=rng.randint(1, 6),
            context_length=rng.choice([16, 1024, 1024]),
            max_batch_tokens=rng.choice([8, 512, 512]),
        )
        draft, row = rng.choice([0.0001, 0.005, 0.05]), rng.choice([0.0, 0.3, 1.0])
        self._draft_time = lambda rows: draft * (1.0 + row * (rows - 1))
        self.prompt = [256, *rng.choices(range(256), k=rng.randint(0, 12))]
        mechanisms = Mechanisms(rng.random() < 0.7, rng.randint(1, 6), rng.random() < 0.5, rng.random() < 0.5)
        broken = rng.uniform(0.0, 0.5)
        self._how: dict[str, Any] = {
            "max_tokens": rng.choice([1, 2, rng.randint(3, 50)]),
            "network": Network(
                rtt=rng.choice([0.0, rng.uniform(0.0, 0.1)]),
                jitter=rng.choice([0.0, 0.0, rng.uniform(0.0, 0.05)]),
                loss=rng.choice([0.0, 0.0, rng.uniform(0.0, 0.3)]),
                outages=rng.choice([(), (), ((broken, broken + rng.uniform(0.0, 2.0)),)]),
            ),
            "overhead": rng.choice([0.0, 0.001]),
            "length": rng.choice([None, None, 0, 1, rng.randint(2, 12)]),
            "mechanisms": replace(LOCKSTEP if rng.random() < 0.2 else mechanisms, trees=rng.random() < 0.6),
            # Threads that wait for a core now and then, for longer than a pass takes.
            "held_up": _now_and_then(rng.choice([0.0, 0.0, 0.02, 0.2]), 0.3, random.Random(seed)),
        }
        # Requests that arrive twice, as a proxy repeats them.
        chance, repeats = rng.choice([0.0, 0.0, 0.1, 0.5]), random.Random(seed)
        again = _now_and_then(1.0, 1.0, repeats)
        self._repeats = lambda: again() if repeats.random() < chance else None
        self.expected = plain(
            Toy(world.script, context_length=world.context), self.prompt, self._how["max_tokens"], self._sampling
        )
        self.lives: list[VirtualDrafter] = []
        self._link: Link | None = None

    @property
    def finished(self) -> bool:
        return bool(self.lives) and self.lives[-1].finished

    def live(self) -> None:
        """Begin the text, or continue after the known tokens."""
        if self.finished:
            return
        if self._link:
            self._link.cut = True
        known = next((each.controller.known for each in reversed(self.lives) if each.controller), self.prompt)
        self._link = Link(self._world, self._repeats)
        life = VirtualDrafter(
            self._link,
            self.prompt,
            self._sampling,
            self._drafter(),
            self._draft_time,
            seed=self._seed,
            name=f"{self._seed}, life {len(self.lives)}",
            **self._how,
        )
        if len(known) > len(self.prompt):
            life.session.resume(known[len(self.prompt) :])
        self.lives.append(life)
        life.start()

    def _drafter(self) -> ModelDrafter:
        """A drafter of a whole text, or in every second text of its parts, where a token that comes again is enough for
        another piece."""
        model, sampling = self._draft_model, self._sampling
        if self._seed % 2 and can_compose(model, PARTS):
            return IdlingDrafter(model, sampling, prompt_len=len(self.prompt), sizes=PARTS)
        return ModelDrafter(model, sampling)

    def check(self, *, killed: bool) -> None:
        expected, before = self.expected, self.prompt
        for controller in (life.controller for life in self.lives if life.controller is not None):
            assert controller.known[: len(before)] == before, f"{controller.known} does not go on with {before}"
            before = controller.known
        assert before == self.prompt + expected, f"{before[len(self.prompt) :]} is not the target's own {expected}"
        if self._world.script.head_agreement == 1.0:
            marks = [each for life in self.lives for each in life.session.details.sources if each.self_continued]
            assert not any(mark.vain for mark in marks), "what the head predicts is what the target decodes"
        last = self.lives[-1]
        assert last.controller is not None and last.session.tokens == self.prompt + expected
        assert last.session.finish_reason == ("stop" if expected[-1] == END else "length")
        if killed:
            return
        course, own, text = (
            last.course,
            sum(each.self_continued for each in last.session.details.sources),
            last.controller.text,
        )
        assert len(course.times) == len(expected) - 1 and course.times == sorted(course.times)
        assert 0 <= course.accepted <= course.judged
        assert course.accepted + own <= len(expected) - 1, "each token has one source; the first comes from the prefill"
        assert 0 <= text.next_draft_ready <= text.mispredicted <= len(expected) - 1


def random_head(seed: int) -> tuple[int, float]:
    """How many tokens the target's own head drafts at most in the world of this seed, and its agreement; in half of all
    worlds there is no head."""
    rng = random.Random(f"{seed} head")
    return rng.choice([0, 0, 0, 1, 2, 8]), rng.choice([0.0, 0.7, 0.9, 1.0])


def _now_and_then(chance: float, longest: float, draws: random.Random) -> Callable[[], float]:
    """Seconds that something takes longer: up to `longest`, as often as `chance` says."""
    return lambda: draws.uniform(0.0, longest) if draws.random() < chance else 0.0


def run(seed: int) -> str:
    """Run the world of a seed until all texts are finished, and on until nothing is left to happen; check the results.

    Returns what happened, the same each time.
    """
    world = RandomWorld(seed)

    def over() -> bool:
        assert world.events < MOST_EVENTS, f"endless loop at {world.now:.3f} s"
        return world.finished

    world.run(done=over)
    assert world.finished, f"deadlock at {world.now:.3f} s"
    ended, passes = world.now, world.passes
    world.run(done=lambda: over() and False)
    # A drafter that learns late of an earlier kill leaves a session behind, which self-continues for a while.
    needless = 0 if world.kills else world.passes - passes
    assert needless <= 1, "passes were computed without need, beside one that had begun"
    for text in world.texts:
        text.check(killed=world.kills > 0)
    assert world.verifier.scheduler.wake_at is None, "the verifier is not idle"
    return f"{ended:.6f} s, {world.events} events, {world.passes} passes, {world.kills} kills"
