"""The machines and links that recorded texts are tried on: models and devices of the simulator's catalogue.

Passes take as long as the roofline says (`lab.simulator.costs.roofline`), with the catalogue's rates: `devices.toml`
names the source of each. What the programs themselves take is the overhead of an exchange, as
`lab.benchmarks.round_trip` measures it here.
"""

from functools import cache
from typing import NamedTuple

from lab.simulator.costs.catalogue import hardware, model, roofline
from lab.simulator.costs.cost import PassCost
from lab.simulator.costs.roofline import Roofline
from specpair.speculation.policy.draft_length import MAX_AUTO
from verifier_server.engine.composer import BatchPlan


class Machine(NamedTuple):
    """A model on a device. `weights`: the number type."""

    model: str
    device: str
    weights: str = "bf16"

    @property
    def cost(self) -> Roofline:
        return _cost(self)


class Setting(NamedTuple):
    """A verifier's machine, a drafter's, and the link between them. Times in seconds."""

    target: Machine
    drafter: Machine
    rtt: float
    overhead: float

    @property
    def pass_times(self) -> list[float]:
        """Seconds of the target's passes over 1, 2, … tokens behind hardly any text, as they are timed at its start."""
        return [self.target.cost.seconds([(width, 0)]) for width in range(1, MAX_AUTO + 2)]

    @property
    def same_box(self) -> PassCost:
        """The draft model on one of the target's devices, in the target's number type."""
        return _alone(self.drafter.model, self.target)


def plan_seconds(cost: PassCost, plan: BatchPlan) -> float:
    """Seconds of a pass that a verifier has planned."""
    return cost.seconds([(len(entry.tokens), entry.start) for entry in plan.batch])


TARGETS = {
    "8B on H100": Machine("llama-3.1-8b", "h100-sxm"),
    "8B on DGX Spark": Machine("llama-3.1-8b", "dgx-spark", "q8_0"),
    "32B on Trainium2": Machine("qwen3-32b", "half-trn2.48xlarge"),  # 8 chips: 32 of its cores, as Neuron counts them
    "70B on 2 H100": Machine("llama-3.1-70b", "h100-sxm-x2", "fp8"),
}
DRAFTERS = {
    "M4": Machine("qwen2.5-0.5b", "m4", "q4_k_m"),
    "RTX 4070": Machine("qwen2.5-0.5b", "rtx-4070", "q4_k_m"),
}
LINKS = (0.0004, 0.02, 0.06, 0.15)  # round trips in seconds: a cable, a city, a country, an ocean


@cache
def _cost(machine: Machine) -> Roofline:
    return roofline(machine.model, machine.device, weights=machine.weights)


@cache
def _alone(name: str, machine: Machine) -> Roofline:
    return Roofline(model(name), hardware(machine.device).device, weights=machine.weights)
