"""Fixtures for tests on the source of transformers-neuronx: the library, and a tiny model loaded with it."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from backends.neuron import NUMBER, VISIBLE
from backends.neuron_legacy.memory import this_chip
from tests.stand_ins.neuron import own_environment


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
