"""A controller in lockstep in worlds with known costs and acceptance: virtual time, no model, no network.

A world fixes beforehand at which positions of a text the drafter is right, so that all draft lengths see the same text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from specpair.speculation.drafts.acceptance_model import AcceptanceModel
from specpair.speculation.drafts.tree import Proposal
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP
from specpair.speculation.policy.timing import LatencyModel

TOKENS, ROUNDS = 600, 200  # a run ends when both are reached
FIXED_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
RIGHT, WRONG = 1, 2


@dataclass(frozen=True)
class World:
    """Costs in seconds, and a drafter with a chance of being right at each position.

    `agreement`: pieces of (from this token on, chance at easy positions, chance at hard ones); one position in two is
    hard. `confidence`: the drafter's confidence at easy and at hard positions.
    """

    draft: float
    link: float  # round trip
    step: float  # of the verifier, without draft tokens
    wider: float  # for each draft token that is verified
    agreement: tuple[tuple[int, float, float], ...]
    confidence: tuple[float, float] = (0.5, 0.5)
    spikes: float = 0.0  # share of rounds in which the network takes nine exchanges longer
    reading: float = 0.0  # for each committed token that the drafter has to read before its next draft token
    prompt: int = 0  # tokens that the drafter has to read at the start
    steps: tuple[float, ...] = ()  # added for each number of draft tokens that is verified

    def verify(self, drafts: int) -> float:
        return self.step + self.wider * drafts + (self.steps[drafts] if self.steps else 0.0)


@dataclass
class Outcome:
    """The rounds of one run in a world."""

    seconds: list[float]  # since the start, after each round
    tokens: list[int]
    made: list[int]  # draft tokens made in each round, sent or not
    sent: list[int]

    def rate(self, since: int = 0) -> float:
        """Tokens per second after the first `since` tokens."""
        first = next(at for at, count in enumerate(self.tokens) if count >= since) if since else -1
        began, had = (self.seconds[first], self.tokens[first]) if since else (0.0, 0)
        return (self.tokens[-1] - had) / (self.seconds[-1] - began)

    def drafts_a_round(self, since: int) -> float:
        return float(np.mean([made for made, tokens in zip(self.made, self.tokens, strict=True) if tokens > since]))


@dataclass(frozen=True)
class Text:
    """A text, fixed beforehand: at each position, whether the drafter is right, and its confidence."""

    right: list[bool]
    confidence: list[float]
    spike: list[bool]  # by round


@cache
def text_of(world: World) -> Text:
    rng = np.random.default_rng(0)
    positions = TOKENS + 64 * ROUNDS
    hard = rng.random(positions) < 0.5
    luck = rng.random(positions)
    late = rng.random(positions)
    chance = np.zeros(positions)
    for since, easy_chance, hard_chance in world.agreement:
        chance[since:] = np.where(hard, hard_chance, easy_chance)[since:]
    confidence = np.where(hard, world.confidence[1], world.confidence[0])
    return Text((luck < chance).tolist(), confidence.tolist(), (late < world.spikes).tolist())


def exchange(world: World, number: int, drafts: int) -> tuple[float, float]:
    """Seconds of the link and of the pass in round `number`."""
    spike = 9 * (world.link + world.step) if text_of(world).spike[number] else 0.0
    return world.link + spike, world.verify(drafts)


def generate(
    world: World, length: int | None, *, pass_times: Sequence[float] = (), room: int = 64, rounds: int = ROUNDS
) -> Outcome:
    """Generate with a fixed draft length, or an automatic one. `pass_times`: as for `LatencyModel`."""
    text = text_of(world)
    times = LatencyModel(pass_times)
    times.exchanged(world.link, 0.0, 0.0)  # as the handshake does
    limit = len(text.right)
    controller = SpeculationController(
        [0], limit, frozenset(), Estimates(times, AcceptanceModel()), DraftLength(length, room), mechanisms=LOCKSTEP
    )
    outcome = Outcome([], [], [], [])
    now, unread, made = 0.0, world.prompt, 0
    while len(controller.known) <= TOKENS or len(outcome.made) < rounds:
        place = len(controller.known) - 1
        in_flight_draft = controller.next_draft(now)
        if in_flight_draft is None:
            step = controller.next_step(now)
            assert step is not None, "neither a draft step nor a request: the run would never end"
            (tail,) = step.tails
            at = place + len(tail)
            now += world.draft + world.reading * unread
            controller.drafted([Proposal(RIGHT if text.right[at] else WRONG, text.confidence[at])], 1 + unread, now)
            unread, made = 0, made + 1
            continue
        sent = len(in_flight_draft.draft)
        accepted = [*text.right[place : place + sent], False].index(False)
        link, verify = exchange(world, len(outcome.made), sent)
        now += link + verify
        controller.answered(in_flight_draft, sent, 0.0, verify, now)
        controller.committed(in_flight_draft.draft.position, [RIGHT] * (accepted + 1), False, now)
        controller.reflect()
        unread += 0 if made else accepted + 1
        outcome.tokens.append(place + accepted + 1)
        outcome.seconds.append(now)
        outcome.made.append(made)
        outcome.sent.append(sent)
        made = 0
    return outcome


def fixed(world: World, length: int) -> Outcome:
    """The same run for a fixed length, computed by sums alone, without reading times."""
    text = text_of(world)
    outcome = Outcome([], [], [], [])
    place, now = 0, 0.0
    while place < TOKENS or len(outcome.made) < ROUNDS:
        accepted = [*text.right[place : place + length], False].index(False)
        now += length * world.draft + sum(exchange(world, len(outcome.made), length))
        place += accepted + 1
        outcome.tokens.append(place)
        outcome.seconds.append(now)
        outcome.made.append(length)
        outcome.sent.append(length)
    return outcome


@cache
def best_fixed(world: World, since: int = 0) -> float:
    """The rate of the best fixed draft length."""
    return max(fixed(world, length).rate(since) for length in FIXED_LENGTHS)
