"""Replaces transformers-neuronx by the stand-in, and loads a tiny model on it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backends.base import Backend, LoadOptions, Progress
from backends.registry import load
from tests.models.conftest import TinyModel

_NAME = "transformers_neuronx"


@contextmanager
def standing_in() -> Iterator[None]:
    """A context in which `import transformers_neuronx` gives the stand-in. For tests marked with the engine torch."""
    from tests.stand_ins import transformers_neuronx

    before = sys.modules.get(_NAME)
    sys.modules[_NAME] = transformers_neuronx
    try:
        yield
    finally:
        del sys.modules[_NAME]
        if before is not None:
            sys.modules[_NAME] = before


def load_on_stand_in(progress: Progress | None = None, **options: Any) -> Backend:
    """A tiny random Llama on the neuron_legacy backend, in float32 unless `options` say otherwise."""
    with TemporaryDirectory() as folder, standing_in():
        model = TinyModel(Path(folder) / "tiny").folder
        return load("neuron_legacy", LoadOptions(**{"model": model, "dtype": "float32", **options}), progress)
