"""A pilot in lockstep in worlds where costs and agreement are known: virtual time, no model, no network.

A world fixes beforehand which places of a text a draft would get right, so that every rule is tried on the same text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from speculation.drafts.tree import Prediction
from speculation.policy.controller import SpeculationController
from speculation.policy.schedule import LOCKSTEP
from speculation.policy.timing import LatencyModel

TOKENS, ROUNDS = 600, 200  # a run is as long as both ask for
FIXED_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
RIGHT, WRONG = 1, 2


@dataclass(frozen=True)
class World:
    """Costs in milliseconds, and a drafter: right at a place with its chance, of which its confidence tells something.

    `agreement` is (from this token on, chance at easy places, chance at hard ones), piece by piece; one place in two
    is hard. `confidence` is what the drafter says of easy and hard places.
    """

    draft_ms: float
    link_ms: float  # there and back
    pass_ms: float  # of the verifier, without drafts
    wider_ms: float  # for each draft that is verified
    agreement: tuple[tuple[int, float, float], ...]
    confidence: tuple[float, float] = (0.5, 0.5)
    spikes: float = 0.0  # share of rounds in which the network takes as long as nine exchanges more
    reading_ms: float = 0.0  # for each committed token that the drafter has not read yet, before its next draft
    prompt: int = 0  # tokens that it has not read at the start
    steps: tuple[float, ...] = ()  # for each number of drafts that is verified, on top

    def verify_ms(self, drafts: int) -> float:
        return self.pass_ms + self.wider_ms * drafts + (self.steps[drafts] if self.steps else 0.0)


@dataclass
class Outcome:
    """What came of a rule in a world."""

    milliseconds: list[float]  # since the start, after each round
    tokens: list[int]
    made: list[int]  # drafts of each round, sent or not
    sent: list[int]

    def rate(self, since: int = 0) -> float:
        """Tokens per millisecond behind the first `since` tokens."""
        first = next(at for at, count in enumerate(self.tokens) if count >= since) if since else -1
        began, had = (self.milliseconds[first], self.tokens[first]) if since else (0.0, 0)
        return (self.tokens[-1] - had) / (self.milliseconds[-1] - began)

    def drafts_a_round(self, since: int) -> float:
        return float(np.mean([made for made, tokens in zip(self.made, self.tokens, strict=True) if tokens > since]))


@dataclass(frozen=True)
class Fate:
    """What a text holds, decided beforehand: at each place whether a draft would be right, and how sure it would be."""

    right: list[bool]
    confidence: list[float]
    spike: list[bool]  # by round


@cache
def fate(world: World) -> Fate:
    rng = np.random.default_rng(0)
    places = TOKENS + 64 * ROUNDS
    hard = rng.random(places) < 0.5
    luck = rng.random(places)
    late = rng.random(places)
    chance = np.zeros(places)
    for since, easy_chance, hard_chance in world.agreement:
        chance[since:] = np.where(hard, hard_chance, easy_chance)[since:]
    confidence = np.where(hard, world.confidence[1], world.confidence[0])
    return Fate((luck < chance).tolist(), confidence.tolist(), (late < world.spikes).tolist())


def exchange_ms(world: World, number: int, drafts: int) -> tuple[float, float]:
    """What the link and the pass of a round take."""
    spike = 9 * (world.link_ms + world.pass_ms) if fate(world).spike[number] else 0.0
    return world.link_ms + spike, world.verify_ms(drafts)


def live(
    world: World, length: int | None, *, pass_ms: Sequence[float] = (), room: int = 64, rounds: int = ROUNDS
) -> Outcome:
    """Generate with fixed drafts a round, or as many as pay. `pass_ms`: what the verifier says of its passes."""
    text = fate(world)
    times = LatencyModel(pass_ms)
    times.exchanged(world.link_ms, 0.0, 0.0)  # the handshake's
    limit = len(text.right)
    controller = SpeculationController(
        [0], limit, frozenset(), times, max_drafts=room, length=length, mechanisms=LOCKSTEP
    )
    outcome = Outcome([], [], [], [])
    now, unread, made = 0.0, world.prompt, 0
    while len(controller.known) <= TOKENS or len(outcome.made) < rounds:
        place = len(controller.known) - 1
        in_flight_draft = controller.next_guess(now)
        if in_flight_draft is None:
            step = controller.next_step(now)
            assert step is not None, "neither a draft nor a guess: it would never go on"
            (tail,) = step.tails
            at = place + len(tail)
            now += world.draft_ms + world.reading_ms * unread
            controller.drafted([Prediction(RIGHT if text.right[at] else WRONG, text.confidence[at])], 1 + unread, now)
            unread, made = 0, made + 1
            continue
        sent = len(in_flight_draft.drafts)
        stood = [*text.right[place : place + sent], False].index(False)
        link, verify = exchange_ms(world, len(outcome.made), sent)
        now += link + verify
        controller.answered(in_flight_draft, sent, 0.0, verify, now)
        controller.committed(in_flight_draft.position, [RIGHT] * (stood + 1), False, now)
        controller.reflect()
        unread += 0 if made else stood + 1
        outcome.tokens.append(place + stood + 1)
        outcome.milliseconds.append(now)
        outcome.made.append(made)
        outcome.sent.append(sent)
        made = 0
    return outcome


def fixed(world: World, length: int) -> Outcome:
    """The same for a fixed length, by sums alone; reading aside."""
    text = fate(world)
    outcome = Outcome([], [], [], [])
    place, now = 0, 0.0
    while place < TOKENS or len(outcome.made) < ROUNDS:
        stood = [*text.right[place : place + length], False].index(False)
        now += length * world.draft_ms + sum(exchange_ms(world, len(outcome.made), length))
        place += stood + 1
        outcome.tokens.append(place)
        outcome.milliseconds.append(now)
        outcome.made.append(length)
        outcome.sent.append(length)
    return outcome


@cache
def best_fixed(world: World, since: int = 0) -> float:
    """The rate of the best of all fixed lengths."""
    return max(fixed(world, length).rate(since) for length in FIXED_LENGTHS)
