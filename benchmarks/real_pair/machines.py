"""The machines and links that recorded texts are tried on: models and devices of the simulator's catalogue.

Passes take as long as the roofline says (`simulator.costs.roofline`), with the catalogue's rates: `devices.toml` names
the source of each. What the programs themselves take is the overhead of an exchange, as `benchmarks.round_trip`
measures it here.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from simulator.costs.catalogue import hardware, model, roofline
from simulator.costs.cost import PassCost, SequencePass
from simulator.costs.roofline import Roofline


class Machine(NamedTuple):
    """A model on a device. `weights`: the number type."""

    model: str
    device: str
    weights: str = "bf16"

    @property
    def cost(self) -> Roofline:
        return _cost(self)

    def __str__(self) -> str:
        return f"{self.model} {self.weights} on {self.device}"


class MeasuredCost(NamedTuple):
    """The cost of passes that were measured: their milliseconds by their tokens."""

    pass_ms: dict[int, float]

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        """Seconds of a pass over `sequences`, on a line between the measured widths."""
        tokens = sum(new for new, _ in sequences)
        return float(np.interp(tokens, [*self.pass_ms], [*self.pass_ms.values()])) / 1e3


class Known(NamedTuple):
    """A model on a machine that is in no catalogue."""

    cost: PassCost


class Setting(NamedTuple):
    """A verifier's machine, a drafter's, and the link between them. Times in seconds."""

    target: Machine | Known
    drafter: Machine | Known
    rtt: float
    overhead: float

    @property
    def same_box(self) -> PassCost:
        """The draft model on one of the target's devices, in the target's number type."""
        if isinstance(self.target, Known) or isinstance(self.drafter, Known):
            return self.drafter.cost
        return _alone(self.drafter.model, self.target)


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
    return Roofline(model(name).model, hardware(machine.device).device, weights=machine.weights)


# One thread for each model: Qwen2.5-Coder 1.5B in bfloat16 and 0.5B in 4 bits on an AMD EPYC of family 26.
HERE = Setting(
    Known(MeasuredCost({1: 139.0, 2: 204.0, 4: 252.0, 8: 331.0, 16: 473.0})),
    Known(MeasuredCost({1: 22.0, 6: 44.0})),
    rtt=0.0004,
    overhead=0.003,
)
