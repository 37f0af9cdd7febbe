"""The instances with NeuronCores: their cores and memory, and the tensor-parallel degrees of transformers-neuronx."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from specpair.engines.errors import ModelLoadError

# Amazon's virtual machines give their instance type as the product's name.
_PRODUCT: Final = Path("/sys/devices/virtual/dmi/id/product_name")
_BYTES_A_CORE: Final = 16 * 2**30  # two cores share the 32 GiB of a chip, on trn1 and inf2
# Degrees whose collectives the library supports, by family. The others either hang or are refused by the runtime.
_DEGREES: Final = {"trn1": (1, 2, 8, 32), "inf2": (1, 2, 4, 8, 24)}
_CORES: Final = {
    **{"trn1.2xlarge": 2, "trn1.32xlarge": 32, "trn1n.32xlarge": 32},
    **{"inf2.xlarge": 2, "inf2.8xlarge": 2, "inf2.24xlarge": 12, "inf2.48xlarge": 24},
}


@dataclass(frozen=True, slots=True)
class Chip:
    """What this machine has. `name`: its instance type, or a description of it."""

    name: str
    degrees: tuple[int, ...]  # numbers of cores that may share a model, ascending
    core_bytes: int = _BYTES_A_CORE  # device memory of a core

    def check(self, degree: int) -> None:
        """Raises ModelLoadError for a degree that is not in `degrees`."""
        if degree not in self.degrees:
            degrees = ", ".join(map(str, self.degrees))
            raise ModelLoadError(
                f"tensor_parallel {degree}: {self.name} supports {degrees} cores for a model", "tensor_parallel"
            )


def trn2_core_bytes(product: Path = _PRODUCT, environment: Mapping[str, str] = os.environ) -> int | None:
    """Device memory of a core of this machine, if it is a trn2; else None.

    Eight cores share the 96 GiB of a chip. By default, two of them act as one.
    """
    if not _instance(product).startswith("trn2"):
        return None
    return (12 if environment.get("NEURON_LOGICAL_NC_CONFIG") == "1" else 24) * 2**30


def _instance(product: Path) -> str:
    """The instance type of this machine; empty if it says none."""
    try:
        return product.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def this_chip(product: Path = _PRODUCT) -> Chip:
    """The chips of this machine. Raises ModelLoadError if the library does not run on them."""
    name = _instance(product)
    family = name.partition(".")[0].removesuffix("n")
    if family in _DEGREES:
        cores = _CORES.get(name, max(_DEGREES[family]))
        return Chip(name, tuple(degree for degree in _DEGREES[family] if degree <= cores))
    if family.startswith("trn"):
        raise ModelLoadError(
            f"neuron_legacy runs on trn1 and inf2, this machine is {name}: use the torch backend with device neuron"
        )
    every = sorted({degree for degrees in _DEGREES.values() for degree in degrees})
    return Chip("transformers-neuronx", tuple(every))
