"""Which engines are installed here, and the command that installs one that is not."""

import shutil
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

from backends.llama_cpp.selfcheck import extra_buffers, repair_command
from backends.registry import EXTRA_OF, SHOWN
from drafter_client.doctor.machine import METAL, NVIDIA, Gpu
from specpair.engines.errors import EngineCrash
from specpair.extras import EXTRAS, installing

_OF_A_VERIFIER = ("vllm", "sglang")  # engines of the verifier alone, which are extras of the same names
_ELSEWHERE = {"neuron_legacy": ("transformers_neuronx", "see docs/trainium.md: its packages are in AWS's index")}
_WITHOUT_PACKAGE = ("sglang",)  # it is a server elsewhere: here is what talks to it
_DISTRIBUTION = {"llama_cpp": "llama-cpp-python", "transformers_neuronx": "transformers-neuronx"}
_OFFLOAD = {NVIDIA: "-DGGML_CUDA=on", METAL: "-DGGML_METAL=on"}  # CMake's option for llama.cpp, by kind of GPU
_COMPILERS = ("c++", "g++", "clang++")
_GETTING_A_COMPILER = "apt install build-essential, or xcode-select --install"


class Engine(NamedTuple):
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


def engines(found: Callable[[str], object] = find_spec) -> list[Engine]:
    """All engines in the order of their table in the documentation. `found`: whether there is a module; None: no."""
    return [_engine(name, found) for name in (*SHOWN, *_OF_A_VERIFIER)]


def _engine(name: str, found: Callable[[str], object]) -> Engine:
    modules: Sequence[str]
    if name in _ELSEWHERE:
        module, mend = _ELSEWHERE[name]
        modules = [module]
    else:
        extra = EXTRA_OF.get(name, name)
        modules, mend = EXTRAS[extra], installing(extra)
    missing = any(found(module) is None for module in modules)
    if missing:
        return Engine(name, None, mend)
    return Engine(name, "installed" if name in _WITHOUT_PACKAGE else _version(modules[0]), "")


def _version(module: str) -> str | None:
    try:
        return version(_DISTRIBUTION.get(module, module))
    except PackageNotFoundError:
        return "unknown"


def of_llama_cpp(
    here: Sequence[Engine], gpus: Sequence[Gpu], which: Callable[[str], str | None] = shutil.which
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
