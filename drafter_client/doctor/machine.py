"""What this machine is, and how fast its memory is read: a decode step reads all weights once."""

import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from backends.machine import available_bytes, cores, cores_to_use, processor, total_bytes

_READ = 256 * 2**20  # bytes that are read in a round, more than most caches hold
_SHARE = 8  # of the free memory, one part at most is read
_ROUNDS = 6
_PATIENCE = 10.0  # seconds for a vendor's program


NVIDIA, METAL, NEURON = "NVIDIA", "Metal", "Neuron"


class Gpu(NamedTuple):
    """`kind`: NVIDIA, METAL or NEURON. `name`: as its maker's program or the system tells it."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Machine:
    """`cores`: logical ones that a process may use; `threads`: those that an engine takes where it is not told.
    `memory`, `free`: bytes; `bandwidth`: bytes a second that all `threads` read, or None where memory is short.
    `gpus`: those that can be seen, and other accelerators.
    """

    processor: str
    system: str
    cores: int
    threads: int
    memory: int
    free: int
    bandwidth: float | None
    gpus: tuple[Gpu, ...]


def this_machine() -> Machine:
    """Look at this machine, and read its memory for a fraction of a second."""
    return Machine(
        processor=processor(),
        system=f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        cores=cores(),
        threads=cores_to_use(),
        memory=total_bytes(),
        free=available_bytes(),
        bandwidth=read_bandwidth(min(_READ, available_bytes() // _SHARE), cores_to_use()),
        gpus=gpus(),
    )


def read_bandwidth(size: int, threads: int, clock: Callable[[], float] = time.perf_counter) -> float | None:
    """Bytes a second that `threads` threads read of `size` bytes of memory, in the best of a few rounds.

    `clock`: returns seconds. None: `size` is less than an array for each thread.
    """
    parts = [np.ones(size // 8 // threads, np.int64) for _ in range(threads)]
    if not parts[0].size:
        return None
    shortest = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_ROUNDS):
            began = clock()
            list(pool.map(np.max, parts))  # it reads with vector instructions, and holds no lock meanwhile
            shortest = min(shortest, clock() - began)
    return sum(part.nbytes for part in parts) / shortest


def gpus(devices: Path = Path("/dev")) -> tuple[Gpu, ...]:
    """What NVIDIA's program lists, the GPU of a Mac, and Neuron devices. `devices`: the folder where these would be."""
    found = [
        Gpu(NVIDIA, name) for name in _printed("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    ]
    if sys.platform == "darwin" and platform.machine() == "arm64":
        found.append(Gpu(METAL, processor()))
    return (*found, *(Gpu(NEURON, device.name) for device in sorted(devices.glob("neuron[0-9]*"))))


def _printed(program: str, *arguments: str) -> list[str]:
    """The lines that a program prints; none where it is missing, or fails or hangs, as without a device."""
    path = shutil.which(program)
    if path is None:
        return []
    try:
        done = subprocess.run(
            [path, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    text = done.stdout.decode(errors="replace") if done.returncode == 0 else ""
    return [line.strip() for line in text.splitlines() if line.strip()]
