"""What is llama.cpp's own of recurrent and hybrid models. tests/backends/test_recurrent.py has what all engines do."""

from contextlib import closing
from pathlib import Path

import pytest

from backends.registry import load
from specpair.engines.backend import Entry
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from tests.stand_ins.tiny_architectures import write_tiny_architecture


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "lfm2.gguf"
    write_tiny_architecture("lfm2", path)
    return path


def test_states_kept_by_the_library_need_no_reading(path: Path) -> None:
    """One slot of LFM2, where a rejection within the last pass costs nothing; in more slots llama.cpp moves states."""
    for slots in (1, 3):
        with closing(load("llama_cpp", LoadOptions(path, slots, 256, threads=1))) as backend:
            backend.extend([Entry(0, 0, [*range(20, 40)], 20)])
            assert [backend.reread(0, length) for length in (20, 13, 11)] == ([0, 0, 11] if slots == 1 else [0, 13, 11])


def test_deterministic_is_refused(path: Path) -> None:
    with pytest.raises(ModelLoadError, match="deterministic is for models with attention in every layer"):
        load("llama_cpp", LoadOptions(path, 1, 256, threads=1, deterministic=True))
