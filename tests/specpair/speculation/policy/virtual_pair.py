"""Drafter-verifier pairs in virtual time: a toy target that caches its logits, and drafters of known quality."""

import random
from collections.abc import Callable, Sequence
from functools import lru_cache

from backends.scripted import ORDER, Script, ScriptedBackend
from lab.simulator.virtual.drafter import VirtualDrafter
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.world import World
from specpair.drafters.base import Drafter, Expansion
from specpair.engines.backend import Entry, Logits
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import plain
from verifier_server.engine.composer import BatchPlan

PROMPT = [256, 1, 2, 3]
LENGTH = 300  # default length of the text that `run` writes


@lru_cache(100_000)
def _logits(script: Script, context: tuple[int, ...]) -> Logits:
    return ScriptedBackend(script).logits_after(context)


class Toy(ScriptedBackend):
    """The scripted model with a cache: each row of logits is computed once in all tests."""

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        return _logits(self.script, tuple(tokens[-ORDER:]))


@lru_cache
def text(count: int = LENGTH, script: Script = Script()) -> tuple[int, ...]:
    """The target's text behind `PROMPT`."""
    return tuple(plain(Toy(script), PROMPT, count))


class Knowing:
    """A drafter that knows the text: its token is right with chance `right`, else the runner-up with chance `second`.

    As with a model, its confidence is higher where it is right. Behind a wrong token it is never right.
    """

    reach = 96

    def __init__(
        self, right: float, second: float = 0.0, width: int = 1, seed: int = 0, script: Script = Script()
    ) -> None:
        self.width = width
        self._right, self._second, self._seed = right, second, seed
        self._text = [*PROMPT, *text(LENGTH + 100, script)]

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        proposals = [self._next([*text, *tail]) for tail in tails]
        if not runners_up:
            proposals = [each._replace(runner_up=None) for each in proposals]
        return Expansion(proposals, len(tails))

    def _next(self, tokens: list[int]) -> Proposal:
        at = len(tokens)
        if tokens != self._text[:at]:
            return Proposal(7, 0.5, 8)
        rng = random.Random(f"{self._seed} {at}")
        good, good_second = rng.random() < self._right, rng.random() < self._second
        truth = self._text[at]
        wrong, other = (truth + 1) % 256, (truth + 2) % 256
        if good:
            return Proposal(truth, rng.uniform(0.6, 1.0), wrong)
        return Proposal(wrong, rng.uniform(0.2, 0.8), truth if good_second else other)


def run(
    drafter: Drafter,
    mechanisms: Mechanisms,
    *,
    rtt: float,
    step: float = 0.0,
    wider: float = 0.0,
    draft: float,
    row: float = 0.3,
    uneven: float = 0.0,
    said: float = 1.0,
    length: int | None = None,
    count: int = LENGTH,
    lookup: bool = False,
    script: Script = Script(),
    estimates: Estimates | None = None,
    prediction: Sequence[int] | None = None,
    curve: Callable[[int], float] | None = None,
    takes: Callable[[Sequence[Entry]], float] | None = None,
) -> VirtualDrafter:
    """Run one drafter to the end of its text. All times are in seconds.

    `row`: time of a further branch of a draft step, as a share of the step. `uneven`: share by which a pass may be
    longer or shorter than its cost. `said`: time of passes that the verifier reports, as a multiple of their cost.
    `curve`: time of a pass by its tokens, instead of `step` and `wider`. `takes`: of a pass by its batch, instead of
    what is reported.
    """
    passes = curve or (lambda tokens: step + wider * (tokens - 1))
    pass_times = [said * passes(tokens) for tokens in range(1, 18)]
    rng = random.Random(0)

    def cost(plan: BatchPlan) -> float:
        return (takes(plan.batch) if takes else passes(plan.tokens)) * rng.uniform(1.0 - uneven, 1.0 + uneven)

    world = World(Toy(script, slots=2), cost, pass_times=pass_times, check=True)
    pair = VirtualDrafter(
        world,
        PROMPT,
        Sampling(),
        drafter,
        lambda rows: draft * (1.0 + row * (rows - 1)),
        max_tokens=count,
        network=Network(rtt),
        length=length,
        mechanisms=mechanisms,
        pass_times=pass_times,
        lookup=lookup,
        estimates=estimates,
        prediction=prediction,
    )
    world.at(0.0, pair.start)
    world.run(done=lambda: pair.finished)
    assert pair.finished and pair.controller is not None
    assert tuple(pair.controller.known[len(PROMPT) :]) == text(count, script)
    return pair
