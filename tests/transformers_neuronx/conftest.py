"""Fixtures for tests on the source of transformers-neuronx: the library, and a tiny model loaded with it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from backends.neuron import NUMBER, VISIBLE
from backends.neuron_legacy.memory import this_chip
from tests.models.conftest import TinyModel
from tests.stand_ins.neuron import own_environment
from tests.transformers_neuronx.loaded import Loaded, load_model

Load = Callable[..., Loaded]
Make = Callable[..., Any]  # of a Direct


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As after the start of a process: the backend claims cores and sets where programs are kept.

    On the chip, the process claims as many cores as any test takes, since its runtime starts once; programs are kept.
    """
    from tests.transformers_neuronx import source  # needs torch

    if source.on_chip():
        monkeypatch.delenv(VISIBLE, raising=False)
        monkeypatch.setenv(NUMBER, str(max(this_chip().degrees)))
        yield
        return
    with own_environment():
        yield


@pytest.fixture(scope="module")
def library() -> Iterator[ModuleType]:
    """The real library, interpreted, as `import transformers_neuronx` gives it."""
    from tests.transformers_neuronx import source  # needs torch

    with source.library() as found:
        yield found


@pytest.fixture
def load(library: ModuleType, tmp_path: Path) -> Iterator[Load]:
    """A function that loads a tiny model with the backend. `changes` are those of the model's config."""
    opened: list[Loaded] = []

    def loaded(changes: dict[str, Any] | None = None, **options: Any) -> Loaded:
        degree, chip = options.get("tensor_parallel", 1), this_chip()
        if degree not in chip.degrees:
            pytest.skip(f"{chip.name} has no degree {degree}")
        opened.append(load_model(TinyModel(tmp_path / "tiny", **changes or {}), **options))
        return opened[-1]

    yield loaded
    for each in opened:
        each.backend.close()


@pytest.fixture
def direct(library: ModuleType, tmp_path: Path) -> Make:
    """A function that makes a tiny model with the library itself. `changes` are those of the model's config."""
    from tests.transformers_neuronx.direct import Direct  # needs torch

    def made(changes: dict[str, Any] | None = None, **options: Any) -> Any:
        return Direct(library, TinyModel(tmp_path / "tiny", **changes or {}), **options)

    return made
