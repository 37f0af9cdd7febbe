"""The machines and links that recorded texts are tried on: models and devices of the simulator's catalogue.

Passes take as long as the roofline says (`lab.simulator.costs.roofline`), with the catalogue's rates: `devices.toml`
names the source of each. What the programs themselves take is the overhead of an exchange, as
`lab.benchmarks.round_trip` measures it here.
"""

import argparse
import json
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from lab.benchmarks.harness.report import RESULTS
from lab.simulator.costs.catalogue import hardware, model, roofline
from lab.simulator.costs.cost import PassCost, SequencePass
from lab.simulator.costs.curve import Curve
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

    def __str__(self) -> str:
        return f"{self.model} {self.weights} on {self.device}"


class MeasuredCost:
    """What the passes of a model take by their tokens, as `lab.benchmarks.verify_curve` measured them."""

    def __init__(self, model: str) -> None:
        """`model`: the name of its file, as the results spell it."""
        given = json.loads((RESULTS / f"verify_curve_{_HERE}_{model}_llama-cpp.json").read_text(encoding="utf-8"))
        self._curve = Curve({cell["drafts"] + 1: cell["ms"] / 1e3 for cell in given["cells"]})

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        return self._curve.at(sum(new for new, _ in sequences))


class Known(NamedTuple):
    """A model on a machine that is in no catalogue."""

    cost: PassCost


def pass_times(cost: PassCost) -> list[float]:
    """Seconds of a model's passes over 1, 2, … tokens behind hardly any text, as they are timed when it is loaded."""
    return [cost.seconds([(width, 0)]) for width in range(1, MAX_AUTO + 2)]


def plan_seconds(cost: PassCost, plan: BatchPlan) -> float:
    """Seconds of a pass that a verifier has planned."""
    return cost.seconds([(len(entry.tokens), entry.start) for entry in plan.batch])


class Setting(NamedTuple):
    """A verifier's machine, a drafter's, and the link between them. Times in seconds."""

    target: Machine | Known
    drafter: Machine | Known
    rtt: float
    overhead: float

    @property
    def pass_times(self) -> list[float]:
        """`pass_times` of the target."""
        return pass_times(self.target.cost)

    @property
    def one_device(self) -> bool:
        """Whether a draft model on the target's box is on the target's device, so that their passes take turns."""
        return isinstance(self.target, Machine)

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
_HERE = "amd-epyc-with-avx-512-vnni"
LINKS = (0.0004, 0.02, 0.06, 0.15)  # round trips in seconds: a cable, a city, a country, an ocean


@cache
def _cost(machine: Machine) -> Roofline:
    return roofline(machine.model, machine.device, weights=machine.weights)


@cache
def _alone(name: str, machine: Machine) -> Roofline:
    return Roofline(model(name), hardware(machine.device).device, weights=machine.weights)


# One thread for each model: Qwen2.5-Coder 1.5B in bfloat16, and the copy in Q4_0 of its 0.5B.
HERE = Setting(
    Known(MeasuredCost("qwen2-5-coder-1-5b-instruct-bf16")),
    Known(MeasuredCost("qwen2-5-coder-0-5b-instruct-q4-0")),
    rtt=0.0004,
    overhead=0.003,
)


def results_name(kind: str, options: argparse.Namespace, targets: Sequence[str] = (*TARGETS,)) -> str:
    """The name of a file of results: `kind`, the pair, and the targets, drafters and links that were asked for, where
    they are not all. `targets`: all of them."""
    parts = [f"{kind}_{options.recording}+{options.draft.stem}"]
    for asked, every in ((options.targets, targets), (options.drafters, DRAFTERS)):
        if asked != [*every]:
            parts.append("+".join(asked).replace(" ", "-"))
    if options.rtts != [*LINKS]:
        parts.append("+".join(f"{1e3 * rtt:g}-ms" for rtt in options.rtts))
    return "_".join(parts)
