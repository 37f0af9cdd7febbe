"""Which NeuronCores this process claims: the Neuron runtime claims all cores of the machine, unless it is told."""

import os
import re
from collections.abc import MutableMapping

from backends.base import ModelLoadError

VISIBLE, NUMBER = "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def read_cores(text: str) -> list[int]:
    """The cores of a list such as "0-3" or "0,2,4-5", in its order. Raises ModelLoadError."""
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise ModelLoadError(f"{VISIBLE}={text}: not a list of cores such as 0-3 or 0,2")
        found += range(first, last + 1)
    return found


def claim(count: int, environment: MutableMapping[str, str] = os.environ) -> None:
    """Make this process claim `count` cores only. It must be called before the runtime starts.

    Raises ModelLoadError if the user's variables leave it fewer.
    """
    if given := environment.get(VISIBLE):
        cores = read_cores(given)
        if len(cores) < count:
            raise ModelLoadError(f"{VISIBLE}={given} names {len(cores)} cores, the model takes {count}: name as many")
    elif given := environment.get(NUMBER):
        if not given.isdecimal() or int(given) < count:
            raise ModelLoadError(f"{NUMBER}={given}: the model takes {count} cores: leave it out, or set as many")
    else:
        environment[VISIBLE] = "0" if count == 1 else f"0-{count - 1}"
