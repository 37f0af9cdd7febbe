"""What `specpair doctor` looks at: this machine, its engines, how fast models run here, what a verifier would gain."""

import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from backends.llama_cpp.selfcheck import extra_buffers, repair_command
from backends.machine import available_bytes, cores, cores_to_use, printed, processor, total_bytes
from backends.registry import EXTRA_OF, SHOWN
from drafter_client.draft_sources import DraftModel
from drafter_client.errors import VocabularyMismatch
from drafter_client.options import Mode
from drafter_client.pair import Pair
from specpair.engines.backend import Backend, Entry, TopLogitsSpec, timing_ids
from specpair.engines.errors import EngineCrash
from specpair.extras import EXTRAS, installing
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.policy.modes.estimate import RateEstimate

NVIDIA, METAL, NEURON = "NVIDIA", "Metal", "Neuron"
_OF_A_VERIFIER = ("vllm", "sglang")  # engines of the verifier alone, which are extras of the same names
_ELSEWHERE = {"neuron_legacy": ("transformers_neuronx", "see docs/trainium.md: its packages are in AWS's index")}
_WITHOUT_PACKAGE = ("sglang",)  # it is a server elsewhere: here is what talks to it
_DISTRIBUTION = {"llama_cpp": "llama-cpp-python", "transformers_neuronx": "transformers-neuronx"}
_OFFLOAD = {NVIDIA: "-DGGML_CUDA=on", METAL: "-DGGML_METAL=on"}  # CMake's option for llama.cpp, by kind of GPU
_COMPILERS = ("c++", "g++", "clang++")
_GETTING_A_COMPILER = "apt install build-essential, or xcode-select --install"
WIDE = 8  # tokens of the wider pass
_HELD = 32  # tokens that stand before a pass
_ROUNDS = 7
_LIMIT = 2.0  # seconds after which no further round begins


class Gpu(NamedTuple):
    """`kind`: NVIDIA, METAL or NEURON. `name`: as its maker's program or the system tells it."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Machine:
    """`cores`: logical ones that a process may use; `threads`: those that an engine takes where it is not told.
    `memory`, `free`: bytes. `gpus`: those that can be seen, and other accelerators.
    """

    processor: str
    system: str
    cores: int
    threads: int
    memory: int
    free: int
    gpus: tuple[Gpu, ...]


def this_machine() -> Machine:
    """Look at this machine."""
    return Machine(
        processor=processor(),
        system=f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        cores=cores(),
        threads=cores_to_use(),
        memory=total_bytes(),
        free=available_bytes(),
        gpus=gpus(),
    )


def gpus(devices: Path = Path("/dev")) -> tuple[Gpu, ...]:
    """What NVIDIA's program lists, the GPU of a Mac, and Neuron devices. `devices`: the folder where these would be."""
    found = [
        Gpu(NVIDIA, name) for name in printed("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    ]
    if sys.platform == "darwin" and platform.machine() == "arm64":
        found.append(Gpu(METAL, processor()))
    return (*found, *(Gpu(NEURON, device.name) for device in sorted(devices.glob("neuron[0-9]*"))))


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


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """`step`, `wide`: seconds of a pass over one token, and over `WIDE`; `wide` is None where a pass takes fewer.
    `size`: bytes of the model's file, or 0 if it is no file; `threads`: CPU threads, 0 on another device.
    """

    name: str
    engine: str
    size: int
    threads: int
    step: float
    wide: float | None


def time_passes(backend: Backend, clock: Callable[[], float]) -> dict[int, float]:
    """Seconds of passes over 1 and `WIDE` tokens in slot 0, by width: those that the engine can take.

    `clock`: returns seconds. Raises what the engine raises.

    The shortest of several passes counts, since the first may prepare what later ones use. The slot is read anew for
    each, because an engine may not be able to take tokens back.
    """
    held = max(1, min(_HELD, backend.max_batch_tokens, backend.context_length - WIDE))
    widths = [width for width in (1, WIDE) if width <= min(backend.max_batch_tokens, backend.context_length - held)]
    ids = timing_ids(backend.vocabulary.size, held + WIDE)
    least = dict.fromkeys(widths, float("inf"))
    began = clock()
    for number in range(_ROUNDS):
        if number > 1 and clock() - began > _LIMIT:
            break
        for width in widths:
            backend.extend([Entry(0, 0, ids[:held], held)])
            started = clock()
            wanted = [TopLogitsSpec(1, 1.0, backend.vocabulary.size)]
            backend.extend_top_logits([Entry(0, held, ids[held : held + width], 0)], wanted)
            least[width] = min(least[width], clock() - started)
            backend.release(0)
    return least


@dataclass(frozen=True, slots=True)
class Gain:
    """`round_trip`, `step`: seconds; `step` is that of the draft model here. `rates`: tokens a second by mode.
    `refusal`: why this machine cannot draft; empty: it can.
    """

    url: str
    target: ModelInfo
    round_trip: float
    draft: str | None
    step: float | None
    shares_cores: bool
    rates: Mapping[Mode, RateEstimate]
    refusal: str = ""

    def ratio(self, mode: Mode) -> float | None:
        """The likely rate of a mode divided by that of the target alone; None: the verifier offers no such mode."""
        alone = self.rates.get(Mode.TARGET)
        return self.rates[mode].likely / alone.likely if alone and mode in self.rates else None

    @property
    def best(self) -> Mode:
        """The mode of the highest likely rate."""
        return max(self.rates, key=lambda mode: self.rates[mode].likely)


def gain(
    url: str,
    source: DraftModel,
    *,
    api_key: str | None,
    memory: Path | None,
    on_wait: Callable[[float | None], None] | None = None,
) -> Gain:
    """Pair with the verifier at `url`, without a text. Where the vocabularies differ, nothing drafts here.

    `memory`: measured acceptance rates of earlier texts; None: one is assumed.
    `on_wait`: as in `Pair`.

    Raises SpecPairError, DrafterError or BackendError.
    """

    def paired(draft: DraftModel | None) -> Pair:
        return Pair(url, draft, api_key=api_key, branches=1, memory=memory, patience=0.0, on_wait=on_wait)

    try:
        with paired(source) as pair:
            return _told(url, pair)
    except VocabularyMismatch as error:
        refusal = str(error)
    with paired(None) as pair:
        return _told(url, pair, refusal)


def _told(url: str, pair: Pair, refusal: str = "") -> Gain:
    drafting, selection = pair.paired.drafting, pair.paired.selection
    return Gain(
        url=url,
        target=pair.target,
        round_trip=selection.link,
        draft=drafting.name,
        step=None if drafting.times is None else drafting.times.token,
        shares_cores=drafting.shares_cores,
        rates=selection.rates,
        refusal=refusal,
    )
