"""Small fleets, what is asked of them, and all that they tell."""

from collections.abc import Iterator, Sequence
from typing import Any

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.record import Conversation, Record, Sample, Turn

TARGET = {"law": "linear", "decode_ms": 25, "per_token_ms": 0.5, "per_sequence_ms": 0.2}
DRAFT = {"law": "linear", "decode_ms": 8, "per_token_ms": 1.2, "per_sequence_ms": 0.1}
MODES = ("target", "fused", "lockstep", "remote", "auto")
WORKLOAD = {"arrival": "poisson", "rate_rps": 1, "prompt_tokens": 9, "output_tokens": 5}  # of files, not of these tests


def link(rtt_ms: float, jitter_ms: float = 0.0, loss: float = 0.0, **ends: str) -> dict[str, Any]:
    """A connection without a bandwidth that matters."""
    return {"rtt_ms": rtt_ms, "jitter_ms": jitter_ms, "loss": loss, "bandwidth_mbps": 1e12, **ends}


def configured(
    mode: str = "target",
    verifiers: Sequence[dict[str, Any]] = ({"name": "a"},),
    drafters: Sequence[dict[str, Any]] = ({"name": "laptop"},),
    **keys: Any,
) -> Configuration:
    """A fleet whose verifiers all have a draft model. `verifiers`, `drafters`: keys of each kind, beside these."""
    kind = {"cost": TARGET, "slots": 32, "draft": {"cost": DRAFT, "agreement": 0.8}}
    device = {"cost": DRAFT, "agreement": 0.8, "count": 50}
    devices = {"verifiers": [kind | each for each in verifiers], "drafters": [device | each for each in drafters]}
    given = {"sim_time_ms": 1e9, "sample_every_ms": 1e9, "connections": [link(20, 2, 0.01)], "workload": WORKLOAD}
    return Configuration.model_validate({**given, "mode": mode, "devices": devices, **keys})


TWO = [{"name": "a"}, {"name": "b"}]


def conversations(count: int, gap: float, turns: int = 2, output: int = 24) -> Iterator[Conversation]:
    """One each `gap` seconds. Their first prompts share 10 tokens."""
    for number in range(count):
        yield Conversation(
            f"c{number}", number * gap, tuple(Turn(20, output + number % 5, 0.2) for _ in range(turns)), "t", 10
        )


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
    configuration: Configuration, coming: Iterator[Conversation], until: float = float("inf"), seed: int = 0
) -> tuple[list[Record], Fleet]:
    """The records in the order of their conversations and turns. A wrong text is an error of the fleet."""
    found = Kept()
    fleet = Fleet(configuration, seed, coming, found)
    fleet.run(until)
    fleet.interrupt()
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
