"""Fixtures for tests of the neuron_legacy backend: a tiny model, the stand-in for the library, and a loader."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends import registry
from specpair.engines.load_options import LoadOptions
from tests.models.conftest import TinyModel
from tests.stand_ins.neuron import models_made, standing_in

IDS = [5 + 7 * number % 250 for number in range(512)]


class Load:
    """Loads the tiny model, with options for a quick load that can be overridden."""

    def __init__(self, folder: Path) -> None:
        self.models: list[tuple[Any, Any]] = []  # each backend, with the library's model that it runs
        self._folder = folder

    def __call__(self, **options: Any) -> Any:
        quick = {"model": self._folder, "slots": 2, "context_length": 127, "batch_tokens": 128, "dtype": "float32"}
        with models_made() as made:
            backend = registry.load("neuron_legacy", LoadOptions(**{**quick, **options}))
        self.models.append((backend, made[-1]))
        return backend

    def model(self, backend: Any) -> Any:
        """The library's model that a backend runs."""
        return next(model for each, model in self.models if each is backend)


@pytest.fixture
def tiny(tmp_path: Path) -> TinyModel:
    return TinyModel(tmp_path / "tiny")


@pytest.fixture
def library() -> Iterator[Any]:
    with standing_in():
        yield sys.modules["transformers_neuronx"]


@pytest.fixture
def load(tiny: TinyModel, library: Any) -> Iterator[Load]:
    """The models are closed at the end: those of a process share one degree and the cores' memory."""
    opened = Load(tiny.folder)
    yield opened
    for each, _ in opened.models:
        each.close()
