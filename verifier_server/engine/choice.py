"""Checks the names of the target's and the draft model's engines, and loads the target's engine."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from backends.registry import SHOWN, has_engine, listed, load
from specpair.engines.backend import Backend, Progress
from specpair.engines.errors import ModelLoadError
from specpair.extras import installing
from verifier_server.engine.engine import with_logits
from verifier_server.engine.interface import LoadedEngine

# Engines that commit tokens by themselves: modules with a `load(options, settings, progress)`, which returns a
# `LoadedEngine`. They cannot draft. Those that give logits are in the registry of the backends.
TOKEN_ENGINES = {"vllm": "verifier_server.engine.vllm.load", "sglang": "verifier_server.engine.sglang.load"}
NGRAM = "ngram"  # the draft engine without a model: n-gram lookup
ENGINES = (*SHOWN, *TOKEN_ENGINES)  # as the help lists them


def check_target(name: str) -> None:
    """Raise ValueError if no engine has this name."""
    if not has_engine(name) and name not in TOKEN_ENGINES:
        raise ValueError(f"backend: {name!r} is unknown, choose one of {', '.join((*listed(), *TOKEN_ENGINES))}")


def check_draft(name: str) -> None:
    """Raise ValueError if no engine that can draft has this name."""
    choice = f"choose one of {', '.join((*listed(), NGRAM))}"
    if name in TOKEN_ENGINES:
        raise ValueError(f"draft_backend: {name} gives no logits to draft with: {choice}")
    if name != NGRAM and not has_engine(name):
        raise ValueError(f"draft_backend: {name!r} is unknown, {choice}")


def load_target(settings: Any, given: Backend | None, progress: Progress, check: Callable[[], object]) -> LoadedEngine:
    """The engine of the target model, loaded. Raises BackendError.

    `settings`: those of the verifier.
    `given`: a backend that is loaded already.
    `check`: called while an engine is waited for that commits tokens by itself; what it raises ends that.
    """
    if given is None and settings.backend in TOKEN_ENGINES:

        def waiting(fraction: float) -> None:
            check()
            if fraction:  # else it is waited for, which its log says
                progress(fraction)

        try:
            module = import_module(TOKEN_ENGINES[settings.backend])
            loaded: LoadedEngine = module.load(settings.load_options(), settings, waiting)
        except ModuleNotFoundError as error:
            raise ModelLoadError(
                f"the {settings.backend} engine needs {error.name}, which is not installed, best in an environment of "
                f"its own: {installing(settings.backend)}"
            ) from error
        return loaded
    return with_logits(given or load(settings.backend, settings.load_options(), progress), settings)
