"""Small fleets, what is asked of them, and all that they tell."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from lab.simulator.costs.cost import LinearCost
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.record import Conversation, Record, Sample, Turn
from lab.simulator.fleet.settings import Breakdowns, DeviceKind, FleetMode, FleetSetting, VerifierKind
from lab.simulator.virtual.network import Network

KIND = VerifierKind(LinearCost(25.0, 0.5, 0.2), slots=32, draft_cost=LinearCost(8.0, 1.2, 0.1))
DEVICE = DeviceKind(Network(0.02, 0.002, 0.01), FleetMode.TARGET, LinearCost(8.0, 1.2, 0.1))
TWO = FleetSetting({"a": KIND, "b": KIND}, (DEVICE,))


def conversations(count: int, gap: float, turns: int = 2, output: int = 24) -> Iterator[Conversation]:
    """One each `gap` seconds. Their first prompts share 10 tokens."""
    for number in range(count):
        yield Conversation(
            f"c{number}", number * gap, tuple(Turn(20, output + number % 5, 0.2) for _ in range(turns)), "t", 10
        )


def lost(at: float, repair: float, kind: VerifierKind = KIND) -> VerifierKind:
    """Verifiers that are lost once, after `at` seconds, for `repair` seconds."""

    def up(rng: Random) -> float:
        first = not hasattr(rng, "was_asked")
        setattr(rng, "was_asked", True)  # noqa: B010
        return at if first else 1e9

    return replace(kind, breakdowns=(Breakdowns(up, lambda rng: repair),))


class Kept:
    """All that an observer is told."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.samples: list[Sample] = []

    def record(self, record: Record) -> None:
        self.records.append(record)

    def sample(self, samples: Sequence[Sample]) -> None:
        self.samples += samples


def run(
    setting: FleetSetting,
    coming: Iterator[Conversation],
    observer: Kept | None = None,
    until: float = float("inf"),
) -> tuple[list[Record], Fleet]:
    """The records in the order of their conversations and turns. A wrong text is an error of the fleet."""
    found = observer or Kept()
    fleet = Fleet(setting, coming, found)
    fleet.run(until)
    return sorted(found.records, key=lambda each: (int(each.conversation[1:]), each.turn)), fleet


# The file of a fleet that is simulated in a moment, for tests of what is made of several runs.
SMALL_FLEET = """\
sim_time_ms: 300
mode: lockstep
gamma: 4
devices:
  verifiers:
    - {name: big, count: 2, cost: {law: linear, decode_ms: 5}}
  drafters:
    - {name: laptop, count: 4, cost: {law: linear, decode_ms: 1}, agreement: 0.8}
    - {name: phone, count: 2, cost: {law: linear, decode_ms: 1}, agreement: 0.8}
workload: {arrival: gamma, cv: 0.01, rate_rps: 60, prompt_tokens: 8, output_tokens: 6}
slo: {ttft_ms: 100}
"""
