"""Which NeuronCores a process claims: those that it uses, and no more.

By default the Neuron runtime of a process claims all cores of the machine, and a claimed core is out of reach for every
other process until the first one ends. So a second server, or a drafter beside a verifier, would fail to start. The
runtime reads its variables once, when it starts. NEURON_RT_VISIBLE_CORES, a list of cores, takes precedence over
NEURON_RT_NUM_CORES, a number of cores of which the runtime chooses free ones.
"""

import os
import re
from collections.abc import MutableMapping

from specpair.engines.errors import ModelLoadError

VISIBLE = "NEURON_RT_VISIBLE_CORES"
NUMBER = "NEURON_RT_NUM_CORES"
_LAST = 4095  # no machine has a core beyond
_PART = re.compile(r"(\d+)(?:-(\d+))?")


def read_cores(text: str) -> list[int]:
    """The cores that a value of NEURON_RT_VISIBLE_CORES names, in its order: "0", "0-3", "0,2" or "0-1,4-5".

    Raises ModelLoadError.
    """
    found: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not first <= last <= _LAST:
            raise ModelLoadError(f"{VISIBLE} is {text!r}: expected are numbers and ranges of cores, as 0-3 or 0,2")
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
    """Set in `environment` that a process claims `cores`, and return these."""
    in_a_row = len(cores) > 1 and cores == list(range(cores[0], cores[-1] + 1))
    environment[VISIBLE] = f"{cores[0]}-{cores[-1]}" if in_a_row else ",".join(map(str, cores))
    return cores
