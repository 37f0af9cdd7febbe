"""Fleets that are reduced to what theory speaks of: queues, where a text is a customer and a verifier with one slot
is a server, and servers of speculative decoding without chance in their times."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gateway.balancing.candidate import NewText
from gateway.balancing.policies import C, Hash, Policy
from lab.simulator.chance import exponential
from lab.simulator.costs.cost import SequencePass
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.observer import Sample
from lab.simulator.fleet.record import Record
from lab.simulator.fleet.settings import DeviceKind, FleetSetting, Mode, VerifierKind
from lab.simulator.virtual.agreement import constant
from lab.simulator.workload.conversation import Conversation, Turn

UNIT = 100  # prompt tokens of a mean service time: services are whole numbers of them
LEAST = 2  # prompt tokens of a text


@dataclass(frozen=True, slots=True)
class ByTokens:
    """A pass takes a time for each of its tokens, and nothing else."""

    per_token: float  # seconds

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        return self.per_token * sum(new for new, _ in sequences)


@dataclass(frozen=True, slots=True)
class Affine:
    """A pass takes a time for itself, and one for each of its texts, however many tokens they have."""

    fixed: float  # seconds
    per_text: float  # seconds

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        return self.fixed + self.per_text * len(sequences) if sequences else 0.0


# Reads one prompt after the other, in order of arrival, in a mean service time of 1 s.
SERVER = VerifierKind(ByTokens(1.0 / UNIT), slots=1, prefill_chunk=1_000_000, batching_window=0.0)


class Ended(list[Record]):
    """An `Observer` that keeps the records of all requests."""

    def record(self, record: Record) -> None:
        self.append(record)

    def sample(self, samples: Sequence[Sample]) -> None:
        pass


def ended(setting: FleetSetting, conversations: Iterator[Conversation]) -> list[Record]:
    """The records of all requests of a fleet, in the order of their ends."""
    records = Ended()
    Fleet(setting, conversations, records).run()
    return records


class LeastWork(Policy):
    """The node that is free first, by the services of the texts. With it, servers that have a queue each serve in the
    order of arrival, as servers with one queue do."""

    def __init__(self, jobs: dict[str, tuple[float, float]]) -> None:
        """`jobs`: arrival and service of each text, in seconds, by its key."""
        self._jobs = jobs
        self._free: dict[str, float] = {}  # when a node is free, by its name

    def choose(self, order: Sequence[C], text: NewText) -> C:
        arrival, service = self._jobs[text.key]
        chosen = min(order, key=lambda each: (self._free.get(each.name, 0.0), each.name))
        self._free[chosen.name] = max(arrival, self._free.get(chosen.name, 0.0)) + service
        return chosen


def poisson(rate: float, count: int, rng: random.Random) -> list[float]:
    """Times of `count` arrivals, in seconds."""
    at, times = 0.0, []
    for _ in range(count):
        at += exponential(rng, 1.0 / rate)
        times.append(at)
    return times


def whole(service: float) -> int:
    """A service time in prompt tokens."""
    return max(LEAST, round(service * UNIT))


def key(number: int) -> str:
    """The key of the text of customer `number`."""
    return f"{number}/0"


def times(
    arrivals: Sequence[float],
    prompts: Sequence[int],
    *,
    kind: VerifierKind = SERVER,
    servers: int = 1,
    outputs: Sequence[int] | None = None,
    policy: Callable[[], Policy],
    seed: int = 0,
) -> list[float]:
    """Seconds from each arrival to the end of its text, in the order of arrivals, in a fleet that decodes alone.

    `prompts`, `outputs`: tokens of each text; `outputs` None: one each.
    """

    def coming() -> Iterator[Conversation]:
        for number, (at, prompt) in enumerate(zip(arrivals, prompts, strict=True)):
            output = 1 if outputs is None else outputs[number]
            yield Conversation(str(number), at, (Turn(prompt - 1, output),))  # the fleet puts a begin token in front

    names = [str(number) for number in range(servers)]
    devices = (DeviceKind(mode=Mode.TARGET),)
    setting = FleetSetting(dict.fromkeys(names, kind), devices, policy, look_every=0.0, seed=seed)
    records = ended(setting, coming())
    return [each.end - each.sent for each in sorted(records, key=lambda each: int(each.conversation))]


def batched(cost: Affine, slots: int) -> VerifierKind:
    """A verifier with continuous batching that waits for nobody and takes prompts as they come."""
    return VerifierKind(cost, slots=slots, prefill_chunk=1_000_000, batching_window=0.0)


def geometric(mean: float, rng: random.Random) -> int:
    """A geometrically distributed number of output tokens: after each, the text ends with the same chance."""
    return 1 + int(math.log(1.0 - rng.random()) / math.log(1.0 - 1.0 / mean))


def together(
    clients: int, kind: VerifierKind, device: DeviceKind, *, output: int, agreement: float, seed: int = 0
) -> list[Record]:
    """The records of `clients` that begin texts of `output` tokens at the same moment."""
    law = constant(agreement)
    server = replace(kind, draft_agreement=law)
    setting = FleetSetting({"server": server}, (replace(device, agreement=law),), Hash, seed=seed)
    return ended(setting, (Conversation(str(number), 0.0, (Turn(1, output),)) for number in range(clients)))


def rates(records: Sequence[Record]) -> list[float]:
    """Tokens per second of each of the texts that begin together, until the first ends."""
    end = min(each.end for each in records)
    return [sum(at <= end for at in each.times) / end for each in records]


def client_rates(
    clients: int, kind: VerifierKind, device: DeviceKind, *, output: int, agreement: float, seed: int = 0
) -> list[float]:
    """Tokens per second of each of `clients` that write texts of `output` tokens at once, until the first ends."""
    return rates(together(clients, kind, device, output=output, agreement=agreement, seed=seed))
