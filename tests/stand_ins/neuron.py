"""Replaces transformers-neuronx by the stand-in, and loads a tiny model on it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from backends.neuron import NUMBER, VISIBLE
from backends.neuron_legacy.compiling import COMPILER_CACHE, FLAGS
from backends.neuron_legacy.model import made
from backends.registry import load
from specpair.engines.backend import Backend, Progress
from specpair.engines.load_options import LoadOptions
from tests.models.conftest import TinyModel

_NAME = "transformers_neuronx"


@contextmanager
def own_environment() -> Iterator[None]:
    """A context with a cache folder of its own, in which the variables that the backend sets are not set yet."""
    with TemporaryDirectory() as cache, pytest.MonkeyPatch.context() as patch:
        for name in (VISIBLE, NUMBER, COMPILER_CACHE, FLAGS):
            patch.setenv(name, "")  # counts as not set, and is put back at the end
        patch.setenv("XDG_CACHE_HOME", cache)
        yield


@contextmanager
def standing_in() -> Iterator[None]:
    """A context in which `import transformers_neuronx` gives the stand-in. For tests marked with the engine torch."""
    from tests.stand_ins import transformers_neuronx

    with own_environment(), pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, _NAME, transformers_neuronx)
        yield


@contextmanager
def models_made() -> Iterator[list[Any]]:
    """A context with the library's models that the backend makes in it."""
    found: list[Any] = []

    def noted(*given: Any) -> Any:
        found.append(made(*given))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backends.neuron_legacy.backend.made", noted)
        yield found


def load_on_stand_in(progress: Progress | None = None, **options: Any) -> Backend:
    """A tiny random Llama on the neuron_legacy backend, in float32 unless `options` say otherwise."""
    with TemporaryDirectory() as folder, standing_in():
        model = TinyModel(Path(folder) / "tiny").folder
        return load("neuron_legacy", LoadOptions(**{"model": model, "dtype": "float32", **options}), progress)
