"""Loads an engine by name, of this distribution or of another one. Only the module of that engine is imported."""

from importlib import import_module
from types import ModuleType

from specpair import plugins
from specpair.engines.backend import Backend, Progress
from specpair.engines.errors import BackendError, ModelLoadError
from specpair.engines.load_options import FreeMemory, LoadOptions
from specpair.extras import installing
from specpair.plugins import BACKENDS, BadPlugin

# Modules with a `load(options, progress)` each, which returns a Backend.
_MODULES = {
    "llama_cpp": "backends.llama_cpp.load",
    "torch": "backends.torch.load",
    "mlx": "backends.mlx",
    "neuron_legacy": "backends.neuron_legacy.backend",
    "scripted": "backends.scripted",
}

EXTRA_OF = {"llama_cpp": "llama", "torch": "torch", "mlx": "mlx"}  # of pyproject.toml, with the packages of an engine

# Engines that compile a model into programs, some of them on some devices only. Their modules have a
# `compiles(options)` and a `programs_folder(options)`, too.
COMPILING = ("torch", "neuron_legacy")

# Engines that run a model's own head: they take the option `head`.
WITH_HEADS = ("llama_cpp", "torch")

# Engines of which all models in a process must be split over the same number of devices.
_ONE_DEGREE = ("neuron_legacy",)

NAMES = tuple(_MODULES)
TEST_ENGINES = ("scripted",)  # accepted everywhere, listed in no help or error text
SHOWN = tuple(name for name in NAMES if name not in TEST_ENGINES)


def has_engine(name: str) -> bool:
    """Whether there is an engine `name`, here or in another distribution."""
    return name in NAMES or name in plugins.names(BACKENDS)


def listed() -> list[str]:
    """The names of all engines, as errors list them."""
    return [*SHOWN, *(name for name in plugins.names(BACKENDS) if name not in NAMES)]


def devices_of_draft(draft_engine: str, engine: str, devices: int) -> int | None:
    """How many devices a draft model is split over, if a target of `engine` is split over `devices`.

    None: it runs on one device.
    """
    return devices if draft_engine == engine and engine in _ONE_DEGREE else None


def compiles(name: str, options: LoadOptions) -> bool:
    """Whether the engine `name` compiles programs when it loads a model with these options. Raises ModelLoadError."""
    return name in COMPILING and bool(_module(name).compiles(options))


def programs_folder(name: str, options: LoadOptions) -> str | None:
    """The folder in which the engine `name`, one of `COMPILING`, will keep compiled programs; None: unknown.

    Raises ModelLoadError.
    """
    folder: str | None = _module(name).programs_folder(options)
    return folder


def room(name: str, options: LoadOptions) -> FreeMemory | None:
    """This machine's memory for a model of the engine `name`; None: unknown to the engine. Raises ModelLoadError."""
    told = getattr(_module(name), "room", None) if name in _MODULES else None
    found: FreeMemory | None = None if told is None else told(options)
    return found


def load(name: str, options: LoadOptions, progress: Progress | None = None) -> Backend:
    """Load a model with the engine `name`. `progress` gets the share done, 0 to 1. Raises ModelLoadError."""
    if name not in _MODULES:
        return _of_plugin(name, options, progress)
    backend: Backend = _module(name).load(options, progress)
    return backend


def load_draft(name: str, options: LoadOptions, progress: Progress | None = None) -> Backend:
    """Load a draft model as `load` does, where the engine chooses nothing else for one. Raises ModelLoadError."""
    own = getattr(_module(name), "load_draft", None) if name in _MODULES else None
    backend: Backend = load(name, options, progress) if own is None else own(options, progress)
    return backend


def _of_plugin(name: str, options: LoadOptions, progress: Progress | None) -> Backend:
    """Load a model with an engine of another distribution, which errors name. Raises ModelLoadError."""
    try:
        plugin = plugins.find(BACKENDS, name)
        if plugin is None:
            raise ModelLoadError(f"unknown backend {name!r}: choose one of {', '.join(listed())}")
        backend = plugin.called(options, progress, expected=BackendError)
    except BadPlugin as error:
        raise ModelLoadError(str(error)) from error
    if not isinstance(backend, Backend):
        raise ModelLoadError(f"{plugin.what} must return a Backend, not {backend!r}")
    return backend


def _module(name: str) -> ModuleType:
    """The module of the engine `name` of this distribution, imported. Raises ModelLoadError."""
    try:
        return import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        if name not in EXTRA_OF:
            raise
        raise ModelLoadError(
            f"the {name} backend needs {error.name}, which is not installed: {installing(EXTRA_OF[name])}"
        ) from error
