"""Who asks, and how long requests and answers are."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from lab.simulator.workload.conversation import Conversation, Turn
from lab.simulator.workload.distributions import ONE, ZERO, Distribution, whole
from lab.simulator.workload.streams import streams


class Lengths(Protocol):
    """How long the turns of conversations are."""

    def draw(self, rng: random.Random) -> tuple[int, int]:
        """Tokens of a prompt and of its answer, each at least 1."""


@dataclass(frozen=True, slots=True)
class Independent:
    """Each by its own distribution."""

    prompt: Distribution
    output: Distribution

    def draw(self, rng: random.Random) -> tuple[int, int]:
        return whole(self.prompt, rng), whole(self.output, rng)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Those of a recorded request, each as likely: a long prompt keeps the answer that it had."""

    pairs: Sequence[tuple[int, int]]

    def draw(self, rng: random.Random) -> tuple[int, int]:
        prompt, output = rng.choice(self.pairs)
        return max(1, prompt), max(1, output)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A group of users with the same habits.

    `share`: of conversations, in relation to other tenants; above 0.
    `turns`: of a conversation.
    `think`: seconds between an answer and the next turn.
    `prefix`: tokens with which all first prompts of the tenant begin, before those of `lengths`.
    """

    lengths: Lengths
    name: str = ""
    share: float = 1.0
    turns: Distribution = ONE
    think: Distribution = ZERO
    prefix: int = 0

    def turns_of_one(self, rng: random.Random, pause: float) -> Iterator[Turn]:
        """The turns of a conversation. `pause`: seconds before the first."""
        for number in range(whole(self.turns, rng)):
            prompt, output = self.lengths.draw(rng)
            yield Turn(prompt + (0 if number else self.prefix), output, self.think.draw(rng) if number else pause)


def deal(
    tenants: Sequence[Tenant], starts: Iterable[float], rng: random.Random, pause: Distribution = ZERO
) -> Iterator[Conversation]:
    """A conversation of one of the tenants, by their shares, for each start.

    `pause`: seconds between a start and the first turn.

    The texts of each tenant, the pauses, and which tenant comes next are streams of their own: what one tenant is like
    does not change what others ask.
    """
    stream = streams(rng)
    choice, pauses = stream("tenant"), stream("pause")
    texts = [stream(f"texts/{each.name}") for each in tenants]
    bounds = list(accumulate(each.share for each in tenants))
    for number, start in enumerate(starts):
        at = choice.choices(range(len(tenants)), cum_weights=bounds)[0]
        tenant = tenants[at]
        turns = tuple(tenant.turns_of_one(texts[at], pause.draw(pauses)))
        yield Conversation(f"{tenant.name or 'conversation'}-{number}", start, turns, tenant.name, tenant.prefix)
