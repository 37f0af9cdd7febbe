"""What this machine is, how fast its memory is read, and which engines are installed."""

import platform
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from backends.llama_cpp.selfcheck import extra_buffers, repair_command
from backends.machine import available_bytes, cores, cores_to_use, printed, processor, total_bytes
from backends.registry import EXTRA_OF, SHOWN
from specpair.engines.errors import EngineCrash
from specpair.extras import EXTRAS, installing

_READ = 256 * 2**20  # bytes that are read in a round, more than most caches hold
_SHARE = 8  # of the free memory, one part at most is read
_ROUNDS = 6


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
        Gpu(NVIDIA, name) for name in printed("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    ]
    if sys.platform == "darwin" and platform.machine() == "arm64":
        found.append(Gpu(METAL, processor()))
    return (*found, *(Gpu(NEURON, device.name) for device in sorted(devices.glob("neuron[0-9]*"))))


_OF_A_VERIFIER = ("vllm", "sglang")  # engines of the verifier alone, which are extras of the same names
_ELSEWHERE = {"neuron_legacy": ("transformers_neuronx", "see docs/trainium.md: its packages are in AWS's index")}
_WITHOUT_PACKAGE = ("sglang",)  # it is a server elsewhere: here is what talks to it
_DISTRIBUTION = {"llama_cpp": "llama-cpp-python", "transformers_neuronx": "transformers-neuronx"}
_OFFLOAD = {NVIDIA: "-DGGML_CUDA=on", METAL: "-DGGML_METAL=on"}  # CMake's option for llama.cpp, by kind of GPU
_COMPILERS = ("c++", "g++", "clang++")
_GETTING_A_COMPILER = "apt install build-essential, or xcode-select --install"


class InstalledEngine(NamedTuple):
    """`version`: of its main package, `installed` if it has none; None if it is not installed.

    `mend`: what makes it run; empty: it does.
    """

    name: str
    version: str | None
    mend: str


class Finding(NamedTuple):
    """Something that is missing or wrong. `mend`: the command or the words that mend it; empty: `what` has them."""

    what: str
    mend: str


def engines(found: Callable[[str], object] = find_spec) -> list[InstalledEngine]:
    """All engines in the order of their table in the documentation. `found`: whether there is a module; None: no."""
    return [_engine(name, found) for name in (*SHOWN, *_OF_A_VERIFIER)]


def _engine(name: str, found: Callable[[str], object]) -> InstalledEngine:
    modules: Sequence[str]
    if name in _ELSEWHERE:
        module, mend = _ELSEWHERE[name]
        modules = [module]
    else:
        extra = EXTRA_OF.get(name, name)
        modules, mend = EXTRAS[extra], installing(extra)
    missing = any(found(module) is None for module in modules)
    if missing:
        return InstalledEngine(name, None, mend)
    return InstalledEngine(name, "installed" if name in _WITHOUT_PACKAGE else _version(modules[0]), "")


def _version(module: str) -> str | None:
    try:
        return version(_DISTRIBUTION.get(module, module))
    except PackageNotFoundError:
        return "unknown"


def of_llama_cpp(
    here: Sequence[InstalledEngine], gpus: Sequence[Gpu], which: Callable[[str], str | None] = shutil.which
) -> list[Finding]:
    """What is missing for llama.cpp, the engine of models that people have: itself, a compiler, the use of `gpus`."""
    [engine] = (each for each in here if each.name == "llama_cpp")
    if engine.mend:
        wanting = [Finding("llama.cpp, which runs GGUF files, is not installed", engine.mend)]
        if not any(map(which, _COMPILERS)):
            wanting.append(Finding("no C++ compiler, with which pip compiles llama.cpp", _GETTING_A_COMPILER))
        return wanting
    try:
        extra_buffers()  # in a process of its own: a crash would end this one
    except EngineCrash as crash:
        return [Finding(str(crash), "")]
    from backends.llama_cpp.library import lib  # loads the library

    option = next((_OFFLOAD[gpu.kind] for gpu in gpus if gpu.kind in _OFFLOAD), None)
    if option is None or lib.llama_supports_gpu_offload():
        return []
    return [Finding("llama.cpp was compiled without support of this machine's GPU", repair_command(option))]
