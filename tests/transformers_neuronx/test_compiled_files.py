"""Compiled programs are kept in files named after what they compute. As many processes compile as were asked for."""

from pathlib import Path

import numpy as np
import pytest

from backends.neuron_legacy.passes import programs_for
from specpair.engines.load_options import LoadOptions
from tests.transformers_neuronx.conftest import Load, Make
from tests.transformers_neuronx.loaded import IDS

pytestmark = pytest.mark.engine("tnx")


@pytest.fixture(autouse=True)
def processes() -> list[int]:
    """The numbers of processes that compilations of this test asked for."""
    from tests.transformers_neuronx import source  # needs torch

    if source.on_chip():
        pytest.skip("the compiler would take minutes for each program")
    source.InProcess.counts.clear()
    return source.InProcess.counts


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_saved_programs_are_loaded_without_compilation(direct: Make, processes: list[int], tmp_path: Path) -> None:
    model = direct(windows=[128])
    model.model.save(str(tmp_path / "kept"))
    assert len(names(tmp_path / "kept")) == 1 + 2 + 3 + 1, "single tokens, prompts, speculation, the window"
    assert len(processes) == 1
    again = direct(windows=[128], compiled=tmp_path / "kept")
    assert len(processes) == 1
    assert np.abs(again.prompt(0, IDS[:10]) - model.expected(IDS[:10])[9]).max() < 1e-4
    got = again.speculate([0], [IDS[10:14]], [range(10, 14)])
    assert np.abs(got[:, :, 0] - model.expected(IDS[:14])[10:]).max() < 1e-4


def test_names_depend_on_the_shapes_alone(direct: Make, tmp_path: Path) -> None:
    """Not on the process, the weights' values or the order of compilation."""
    direct().model.save(str(tmp_path / "first"))
    second = direct({"vocab_size": 264})
    second.model.save(str(tmp_path / "second"))
    assert names(tmp_path / "first") == names(tmp_path / "second")
    direct(cells=384, buckets=[128, 384]).model.save(str(tmp_path / "more cells"))
    shared = names(tmp_path / "first") & names(tmp_path / "more cells")
    assert len(shared) == 1, "the narrow prompt: its program gets only the first cells of a slot"


@pytest.mark.parametrize("other", [{"lengths": [4, 8, 17]}, {"slots": 2}, {"cells": 384, "buckets": [128, 384]}])
def test_missing_program_is_an_error(direct: Make, tmp_path: Path, other: dict[str, int]) -> None:
    direct().model.save(str(tmp_path / "kept"))
    with pytest.raises(FileNotFoundError, match="Could not find a matching NEFF"):
        direct(compiled=tmp_path / "kept", **other)
    with pytest.raises(FileNotFoundError, match="Did not find directory"):
        direct(compiled=tmp_path / "none")


def test_as_many_processes_compile_as_asked_for(direct: Make, processes: list[int]) -> None:
    direct(workers=2)
    direct()
    assert processes == [2, 1 + 2 + 3], "without a number, one for each program"


def test_backend_finds_the_programs_of_an_earlier_start(load: Load, processes: list[int], tmp_path: Path) -> None:
    options = {"compile_cache": tmp_path / "kept", "compile_workers": 2}
    first = load(**options)
    assert processes == [2]
    [folder] = [path for path in (tmp_path / "kept").iterdir() if path.is_dir()]
    backend = first.backend
    programs = programs_for(LoadOptions(), backend.slots, backend.context_length, backend.max_batch_tokens)
    assert len(names(folder)) == programs.count
    second = load(**options)
    assert processes == [2], "the compiler was not asked again"
    assert second.walk(10) < 2e-4
    next(iter(folder.iterdir())).unlink()
    load(**options)
    assert processes == [2, 2]
