"""Fixtures for tests of the neuron_legacy backend: a tiny model, the stand-in for the library, and a loader."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends import registry
from specpair.engines.backend import Backend
from specpair.engines.load_options import LoadOptions
from tests.models.conftest import TinyModel
from tests.stand_ins.neuron import standing_in

IDS = [5 + 7 * number % 250 for number in range(512)]
Load = Callable[..., Any]


@pytest.fixture
def tiny(tmp_path: Path) -> TinyModel:
    return TinyModel(tmp_path / "tiny")


@pytest.fixture
def library() -> Iterator[Any]:
    with standing_in():
        yield sys.modules["transformers_neuronx"]


@pytest.fixture
def load(tiny: TinyModel, library: Any) -> Iterator[Load]:
    """A function that loads the tiny model, with options for a quick load that can be overridden.

    The models are closed at the end: those of a process share one degree and the cores' memory.
    """
    opened: list[Backend] = []

    def loaded(**options: Any) -> Any:
        quick = {"model": tiny.folder, "slots": 2, "context_length": 127, "batch_tokens": 128, "dtype": "float32"}
        opened.append(registry.load("neuron_legacy", LoadOptions(**{**quick, **options})))
        return opened[-1]

    yield loaded
    for each in opened:
        each.close()
