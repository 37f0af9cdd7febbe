"""Imports the AWS Neuron SDK, and claims NeuronCores, for the engines torch and neuron_legacy.

By default the Neuron runtime of a process claims all cores of the machine, and a claimed core is out of reach for every
other process until the first one ends. So a second server, or a drafter beside a verifier, would fail to start. The
runtime reads its variables once, when it starts. NEURON_RT_VISIBLE_CORES, a list of cores, takes precedence over
NEURON_RT_NUM_CORES, a number of cores of which the runtime chooses free ones.

AWS publishes the SDK on its own package index. The public index has placeholders of the same names. They install
without a warning and raise an ImportError on import, so that a forgotten index is noticed late or never: the compiler's
placeholder cannot even be imported, because its folder has a hyphen in its name.
"""

import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final

from specpair.engines.errors import ModelLoadError

VISIBLE = "NEURON_RT_VISIBLE_CORES"
NUMBER = "NEURON_RT_NUM_CORES"
_LAST = 4095  # no machine has a core beyond
_PART = re.compile(r"(\d+)(?:-(\d+))?")

REQUIREMENTS: Final = "requirements/neuron.txt"  # trn2 and trn3, through torch
LEGACY_REQUIREMENTS: Final = "requirements/neuron-legacy.txt"  # trn1 and inf2, through transformers-neuronx

_COMPILER: Final = "neuronx-cc"
_DISTRIBUTIONS: Final = ("transformers-neuronx", "torch-neuronx", "neuronx-cc", "libneuronxla", "nki")
_MARK: Final = "WRONG PACKAGE."  # the beginning of a placeholder's description and of its ImportError
# Amazon's virtual machines give their instance type as the product's name.
PRODUCT: Final = Path("/sys/devices/virtual/dmi/id/product_name")


def read_cores(text: str) -> list[int]:
    """The cores that a value of NEURON_RT_VISIBLE_CORES names, in its order: "0", "0-3", "0,2" or "0-1,4-5".

    Raises ModelLoadError.
    """
    found: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not first <= last <= _LAST:
            raise ModelLoadError(f"{VISIBLE} is {text!r}: expected numbers and ranges of cores, as 0-3 or 0,2")
        found.extend(range(first, last + 1))
    if len(set(found)) < len(found):
        raise ModelLoadError(f"{VISIBLE} is {text!r}: it names a core twice")
    return found


def claim(
    count: int, environment: MutableMapping[str, str] = os.environ, *, one_process: bool = True
) -> list[int] | None:
    """Let this process claim `count` cores; call it before the runtime starts. Returns them; None: the runtime chooses.

    A list of cores that the user has set is cut down to its first `count`. A number of cores that the user has set is
    left as it is. Else the first `count` cores of the machine are claimed. Raises ModelLoadError where the user allows
    fewer, or cores that are not consecutive for `one_process`: its runtime refuses these.
    """
    listed = environment.get(VISIBLE)
    if listed:
        cores = read_cores(listed)
        if len(cores) < count:
            raise ModelLoadError(
                f"{VISIBLE} is {listed!r}: the model takes {count} cores, name as many, or unset it for the first ones "
                "(a process keeps the cores of its first model: for a larger one, start another process)"
            )
        cores = cores[:count]
        if one_process and cores != list(range(cores[0], cores[0] + count)):
            raise ModelLoadError(
                f"{VISIBLE} is {listed!r}: the {count} cores of a model must be consecutive, as {cores[0]}-"
                f"{cores[0] + count - 1}"
            )
        return show(cores, environment)
    number = environment.get(NUMBER, "").strip()
    if number and number != "0":  # to the runtime, 0 means all cores
        if not number.isdecimal() or int(number) < count:
            raise ModelLoadError(f"{NUMBER} is {number!r}: the model takes {count} cores, set {count}, or unset it")
        return None
    return show(list(range(count)), environment)


def show(cores: list[int], environment: MutableMapping[str, str]) -> list[int]:
    """Claim `cores` in `environment`, and return them."""
    in_a_row = len(cores) > 1 and cores == list(range(cores[0], cores[-1] + 1))
    environment[VISIBLE] = f"{cores[0]}-{cores[-1]}" if in_a_row else ",".join(map(str, cores))
    return cores


def trn2_core_bytes(product: Path = PRODUCT, environment: Mapping[str, str] = os.environ) -> int | None:
    """Device memory of a core of this machine, if it is a trn2; else None.

    Eight cores share the 96 GiB of a chip. By default, two of them act as one.
    """
    if not instance_type(product).startswith("trn2"):
        return None
    return (12 if environment.get("NEURON_LOGICAL_NC_CONFIG") == "1" else 24) * 2**30


def instance_type(product: Path) -> str:
    """The instance type of this machine; empty if unknown."""
    try:
        return product.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def import_neuron(module: str, requirements: str) -> Any:
    """Import `module`, which `requirements` installs. Raises ModelLoadError with the install command."""
    refuse_placeholders(requirements)
    find_compiler()
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise ModelLoadError(f"{module} is not installed: {_command(requirements)}") from None
        raise ModelLoadError(f"{module} needs {error.name}, which is missing: {_command(requirements)}") from error
    except (ImportError, OSError, RuntimeError) as error:  # the runtime's libraries are loaded, too
        if _MARK in str(error):  # a placeholder copied without its metadata
            raise ModelLoadError(_placeholder(module, requirements)) from None
        missing = ": install the package aws-neuronx-runtime-lib" if "libnrt" in str(error) else ""
        raise ModelLoadError(f"{module} is installed but cannot be imported: {error}{missing}") from error


def find_compiler() -> None:
    """Put the compiler of this Python's environment first on PATH, because the libraries start it by its name.

    A program that is started as .venv/bin/uvicorn, or by systemd, would not find it, or find that of another
    environment.
    """
    folder = Path(sys.executable).parent
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if (folder / _COMPILER).exists() and folders[0] != str(folder):
        os.environ["PATH"] = os.pathsep.join([str(folder), *folders])


def refuse_placeholders(requirements: str) -> None:
    """Raises ModelLoadError if any SDK package of this environment is the public index's placeholder."""
    found = []
    for name in _DISTRIBUTIONS:
        with suppress(metadata.PackageNotFoundError):
            described = metadata.metadata(name)
            if _MARK in (described["Description"] or ""):
                found.append(f"{name} {described['Version']}")
    if found:
        raise ModelLoadError(_placeholder(", ".join(found), requirements))


def _placeholder(what: str, requirements: str) -> str:
    return f"{what}: an empty placeholder from the public package index, not the Neuron SDK: {_command(requirements)}"


def _command(requirements: str) -> str:
    return f"run `pip install -r {requirements}`, which names AWS's own package index"
