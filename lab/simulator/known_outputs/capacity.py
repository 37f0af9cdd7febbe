"""Capacity in virtual time: the real scheduler and the real controllers; time, network and costs are modelled.

Clients start at random within a fifth of a second, all draft at the same pace, and are measured for some seconds after
a warm-up. Their programs take no time. Forms of clients and verifiers:

    ours          drafters with all mechanisms on, as `python -m drafter_client` runs
    k=4           lockstep with four draft tokens, as public REST pairs do; does not say when its next request comes
    target        the target alone: texts decoded to their end on the server, as `/generate` does
    one by one    a verifier that judges one request at a time, in order of arrival: for ours and k=4
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lab.simulator.costs.linear import LinearCost
from lab.simulator.known_outputs.capacity_clients import (
    CONTEXT,
    Client,
    Ours,
    Replayed,
    Setting,
    Starting,
    TargetAlone,
    known_pass_times,
)
from lab.simulator.known_outputs.capacity_model import KnownOutput, KnownTarget, Metrics, TextRange
from lab.simulator.virtual.world import World
from verifier_server.engine.composer import BatchPlan, Composer
from verifier_server.engine.sequence_state import LONGEST, SequenceState

_WITHIN = 0.2  # seconds in which the clients start


class PassMeter:
    """The time of each verifier pass by `cost`, for a `World`; keeps a list of the passes."""

    def __init__(self, cost: LinearCost) -> None:
        self.passes: list[tuple[int, float]] = []  # of each pass, its sessions and its seconds
        self._cost = cost

    def __call__(self, plan: BatchPlan) -> float:
        seconds = self._cost.of(plan.batch)
        self.passes.append((len(plan.batch), seconds))
        return seconds


class OneByOne(Composer):
    """Puts a single session into each verifier pass: the one that has waited longest."""

    def compose(self, waiting: list[SequenceState], continuing: list[SequenceState], now: float) -> BatchPlan:
        return super().compose(waiting[:1], [] if waiting else continuing[:1], now)


@dataclass(frozen=True, slots=True)
class ClientForm:
    """One of the forms of the module: a kind of client, and whether the verifier judges requests one by one."""

    client: Callable[[World, KnownOutput, Setting, str], Client]
    one_by_one: bool = False


FORMS = {
    "ours": ClientForm(Ours),
    "k=4": ClientForm(Replayed),
    "target": ClientForm(TargetAlone),
    "ours, one by one": ClientForm(Ours, one_by_one=True),
    "k=4, one by one": ClientForm(Replayed, one_by_one=True),
}


@dataclass(frozen=True, slots=True)
class CapacityOutcome:
    """What was measured of the clients, and of the verifier in the same seconds."""

    metrics: Metrics
    parts: list[TextRange]  # of each text, the part that was written
    sessions: float  # mean sessions in a verifier pass
    busy: float  # share of the time, 0 to 1, that verifier passes took


def measure(form: ClientForm, clients: int, setting: Setting) -> CapacityOutcome:
    """Simulate `clients` clients of `form`. Raises RuntimeError where one writes another text than the target's."""
    world, meter = virtual_world(setting, clients, one_by_one=form.one_by_one)
    crowd = [form.client(world, KnownOutput(number), setting, f"session-{number}") for number in range(clients)]
    start_all(world, crowd)
    world.run(until=setting.warm_up)
    before, known = len(meter.passes), [len(each.times) for each in crowd]
    world.run(until=setting.warm_up + setting.seconds)
    passes = meter.passes[before:]
    for client in crowd:
        if client.session.tokens != client.text.tokens(0, len(client.session.tokens)):
            raise RuntimeError(f"the text of {client.session.id} is not the target's")
    return CapacityOutcome(
        Metrics.of([each.times for each in crowd], setting.warm_up, setting.warm_up + setting.seconds),
        [
            (each.text, len(each.text.prompt) + 1 + start, len(each.text.prompt) + 1 + len(each.times))
            for each, start in zip(crowd, known, strict=True)
        ],
        sum(sessions for sessions, _ in passes) / len(passes),
        sum(seconds for _, seconds in passes) / setting.seconds,
    )


def carried(form: ClientForm, rate: float, setting: Setting, most: int) -> int:
    """The greatest number of clients, `most` at most, that get `rate` tokens per second each on average.

    Found by bisection.
    """
    least, beyond = 0, most + 1
    while beyond - least > 1:
        middle = (least + beyond) // 2
        if measure(form, middle, setting).metrics.each >= rate:
            least = middle
        else:
            beyond = middle
    return least


def virtual_world(
    setting: Setting, clients: int, *, one_by_one: bool = False, chunk: int = 128, max_queue: int = 256
) -> tuple[World, PassMeter]:
    """A verifier with slots for `clients` sessions, and its meter.

    `chunk`: most prompt tokens in a verifier pass.
    `max_queue`: requests that may wait.
    """
    meter, backend = PassMeter(setting.target), KnownTarget(slots=clients, context_length=CONTEXT)
    batching_window = 0.0 if one_by_one else LONGEST
    world = World(
        backend,
        meter,
        pass_times=known_pass_times(setting.target),
        prefill_chunk=chunk,
        batching_window=batching_window,
        max_queue=max_queue,
    )
    if one_by_one:
        scheduler = world.scheduler
        known = scheduler.slots, scheduler._queue, scheduler._pass_time
        scheduler._composer = OneByOne(backend, *known, chunk, scheduler.max_drafts, ())
    return world, meter


def start_all(world: World, crowd: Iterable[Starting]) -> None:
    """Start each of `crowd` at a random time within `_WITHIN` seconds, the same ones in every run."""
    rng = random.Random(0)
    for client in crowd:
        world.at(rng.uniform(0.0, _WITHIN), client.start)
