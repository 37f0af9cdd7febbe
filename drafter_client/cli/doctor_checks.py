"""Checks of `specpair doctor`: this machine, its engines, the speed of models here, and a verifier's gain."""

import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from backends.llama_cpp.selfcheck import extra_buffers, repair_command
from backends.machine import available_bytes, cores, cores_to_use, printed, processor, total_bytes
from backends.registry import EXTRA_OF, SHOWN
from drafter_client.draft_sources import DraftModel
from drafter_client.errors import VocabularyMismatch
from drafter_client.http.trust import SYSTEM, Trust
from drafter_client.options import Mode
from drafter_client.pair import Pair
from specpair.engines.backend import Backend, Entry, TopLogitsSpec
from specpair.engines.errors import EngineCrash
from specpair.engines.probe_texts import timing_ids
from specpair.extras import EXTRAS, installing

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


@dataclass(frozen=True, slots=True)
class Gpu:
    """`kind`: NVIDIA, METAL or NEURON. `name`: from its vendor's program or the system."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Machine:
    """`cores`: logical cores that a process may use; `threads`: an engine's threads by default.
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
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return Machine(processor(), system, cores(), cores_to_use(), *(total_bytes(), available_bytes()), gpus=gpus())


def gpus(devices: Path = Path("/dev")) -> tuple[Gpu, ...]:
    """GPUs that nvidia-smi lists, the GPU of a Mac, and Neuron devices. `devices`: the folder of device files."""
    found = [
        Gpu(NVIDIA, name) for name in printed("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    ]
    if sys.platform == "darwin" and platform.machine() == "arm64":
        found.append(Gpu(METAL, processor()))
    return (*found, *(Gpu(NEURON, device.name) for device in sorted(devices.glob("neuron[0-9]*"))))


@dataclass(frozen=True, slots=True)
class InstalledEngine:
    """`version`: of its main package, `installed` if it has none; None if it is not installed.

    `mend`: what makes it run; empty: it does.
    """

    name: str
    version: str | None
    mend: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is missing or wrong. `mend`: the command or advice that mends it; empty: see `what`."""

    what: str
    mend: str = ""


def engines(found: Callable[[str], object] = find_spec) -> list[InstalledEngine]:
    """All engines in the order of the documentation's table. `found`: returns None for a missing module."""
    return [_engine(name, found) for name in (*SHOWN, *_OF_A_VERIFIER)]


def _engine(name: str, found: Callable[[str], object]) -> InstalledEngine:
    extra = EXTRA_OF.get(name, name)
    module, mend = _ELSEWHERE.get(name) or (EXTRAS[extra][0], installing(extra))
    if any(found(each) is None for each in ([module] if name in _ELSEWHERE else EXTRAS[extra])):
        return InstalledEngine(name, None, mend)
    try:
        known = "installed" if name in _WITHOUT_PACKAGE else version(_DISTRIBUTION.get(module, module))
    except PackageNotFoundError:
        known = "unknown"
    return InstalledEngine(name, known, "")


def of_llama_cpp(
    here: Sequence[InstalledEngine], gpus: Sequence[Gpu], which: Callable[[str], str | None] = shutil.which
) -> list[Finding]:
    """What is missing for llama.cpp, the engine of GGUF models: the engine, a compiler, support for `gpus`."""
    [engine] = (each for each in here if each.name == "llama_cpp")
    if engine.mend:
        wanting = [Finding("llama.cpp, which runs GGUF files, is not installed", engine.mend)]
        if not any(map(which, _COMPILERS)):
            wanting.append(Finding("no C++ compiler, with which pip compiles llama.cpp", _GETTING_A_COMPILER))
        return wanting
    try:
        extra_buffers()  # in a process of its own: a crash would end this one
    except EngineCrash as crash:
        return [Finding(str(crash))]
    from backends.llama_cpp.library import lib  # loads the library

    option = next((_OFFLOAD[gpu.kind] for gpu in gpus if gpu.kind in _OFFLOAD), None)
    if option is None or lib.llama_supports_gpu_offload():
        return []
    return [Finding("llama.cpp was compiled without support of this machine's GPU", repair_command(option))]


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """`step_ms`: of a pass over one token; `pass_of_8_ms`: over `WIDE`, None where a pass takes fewer.
    `bytes`: of the model's file, or 0 if it is no file; `kv_bytes`: of the KV cache, for a prompt of any length;
    `threads`: CPU threads, 0 on another device.
    """

    name: str
    engine: str
    bytes: int
    kv_bytes: int
    threads: int
    step_ms: float
    pass_of_8_ms: float | None


def time_passes(backend: Backend, clock: Callable[[], float]) -> dict[int, float]:
    """Seconds of passes over 1 and `WIDE` tokens in slot 0, by width: those that the engine can take. Raises what the
    engine raises.

    The shortest of several passes counts, since the first may prepare what later ones use. The slot is read anew for
    each, because some engines cannot take tokens back.
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
    """`draft_step_ms`: of the draft model here. `expected`: tokens a second (`likely`, `low`, `high`) by mode.
    `fastest`: the mode of the highest likely rate. `refusal`: why this machine cannot draft; None: it can.
    """

    url: str
    model: str
    backend: str | None
    pass_ms: list[float]
    round_trip_ms: float
    draft_model: str | None
    draft_step_ms: float | None
    shares_cores: bool
    expected: dict[str, dict[str, float]]
    fastest: str
    refusal: str | None

    def ratio(self, mode: str) -> float | None:
        """The likely rate of a mode divided by that of the target alone; None: the verifier offers no such mode."""
        alone = self.expected.get(Mode.TARGET)
        return self.expected[mode]["likely"] / alone["likely"] if alone else None


def gain(
    url: str,
    source: DraftModel,
    *,
    api_key: str | None,
    memory: Path | None,
    trust: Trust = SYSTEM,
    on_wait: Callable[[float | None], None] | None = None,
) -> Gain:
    """Pair with the verifier at `url`, without a text, and estimate the gain of drafting here. Raises
    SpecPairError, DrafterError or BackendError."""

    def paired(draft: DraftModel | None) -> Pair:
        return Pair(url, draft, api_key=api_key, trust=trust, branches=1, memory=memory, patience=0.0, on_wait=on_wait)

    refusal = None
    try:
        pair = paired(source)
    except VocabularyMismatch as error:
        refusal, pair = str(error), paired(None)
    with pair:
        drafting, selection = pair.paired.drafting, pair.paired.selection
        return Gain(
            url=url,
            model=pair.target.name,
            backend=pair.target.engine,
            pass_ms=list(pair.target.pass_ms),
            round_trip_ms=1e3 * selection.link,
            draft_model=drafting.name,
            draft_step_ms=None if drafting.times is None else 1e3 * drafting.times.token,
            shares_cores=drafting.shares_cores,
            expected={str(mode): each._asdict() for mode, each in selection.rates.items()},
            fastest=str(max(selection.rates, key=lambda mode: selection.rates[mode].likely)),
            refusal=refusal,
        )
