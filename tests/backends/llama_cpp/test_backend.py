"""Trees on llama.cpp beyond the conformance tests: how many leaves, which models, and a pass without room."""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.llama_cpp.batch import leaves_of
from backends.llama_cpp.widths import ONE_PATH, equal_up_to
from backends.registry import load
from models import DEFAULT_DRAFT
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import BadEntry, CacheFull, ModelLoadError
from specpair.engines.load_options import MOST_SLOTS, LoadOptions
from tests.stand_ins.tiny_architectures import write_tiny_architecture

TEXT = [5 + 7 * at % 190 for at in range(40)]


@pytest.mark.parametrize("slots", [1, 4, 16, 40, 64, 65, MOST_SLOTS])
def test_a_slot_has_fewer_leaves_where_there_are_many_slots(slots: int) -> None:
    leaves = leaves_of(slots, 512)
    assert 1 <= leaves <= 8 and (leaves == 1 or leaves * slots <= 128)
    assert leaves_of(slots, slots) == 1, "a pass has room for a token of each sequence"


def test_models_and_settings_without_one_shared_cache_take_none(tmp_path: Path) -> None:
    write_tiny_architecture("mamba2", tmp_path / "mamba2.gguf")
    for options in (
        LoadOptions(DEFAULT_DRAFT, 2, 64, threads=1, deterministic=True),
        LoadOptions(tmp_path / "mamba2.gguf", 2, 64, threads=1, kv_type="f32", flash_attention=False),
    ):
        with closing(load("llama_cpp", options)) as backend:
            assert not backend.takes_trees
            with pytest.raises(BadEntry, match="llama_cpp takes no trees"):
                backend.extend([Entry(0, 0, TEXT[:3], 0, [1, 2])])


def test_only_an_engine_that_can_splice_has_spare_slots(tmp_path: Path) -> None:
    write_tiny_architecture("mamba2", tmp_path / "mamba2.gguf")
    wanted = LoadOptions(DEFAULT_DRAFT, 2, 64, threads=1, contexts=2, shared_cells=30, spare_slots=2)
    recurrent = replace(wanted, model=tmp_path / "mamba2.gguf", kv_type="f32", flash_attention=False)
    for options, slots in (
        (wanted, 4),
        (replace(wanted, kv_type="q4_0"), 2),
        (recurrent, 2),
        (replace(wanted, slots=MOST_SLOTS, shared_cells=500), MOST_SLOTS),
    ):
        with closing(load("llama_cpp", options)) as backend:
            assert backend.slots == slots


def test_the_first_path_has_the_bits_of_a_chain() -> None:
    """Its cells are in the order of its positions, and those of the rest behind them, which later tokens take over."""
    with closing(load("llama_cpp", LoadOptions(DEFAULT_DRAFT, 1, 64, threads=1))) as backend:
        assert backend.even_width
        plain = [backend.extend([Entry(0, at, [token], 0)])[0][0].copy() for at, token in enumerate(TEXT)]
        backend.release(0)
        backend.extend([Entry(0, 0, TEXT[:4], 0)])
        for at in range(4, len(TEXT) - 4, 3):
            tokens = [*TEXT[at : at + 4], *TEXT[:3]]
            rows = backend.extend([Entry(0, at, tokens, 0, [1, 1, 1, 4, 4, 4])])[0]
            assert np.array_equal(rows[:4], plain[at : at + 4])
            backend.keep(0, [1, 2])


def test_a_tree_for_which_there_is_no_room_leaves_the_other_slots_as_they_are() -> None:
    """Also the tree of another one, of which no path is kept yet."""
    options = LoadOptions(DEFAULT_DRAFT, 3, 250, threads=1, contexts=1, shared_cells=0, batch_tokens=256)
    with closing(load("llama_cpp", options)) as backend:
        backend.extend([Entry(0, 0, TEXT[:12], 9, [1, 2, 2, 2])])
        held = (TEXT * 6)[:225]
        backend.extend([Entry(1, 0, held, 225)])
        wide = [1, 2, 3, 4, 5, *[5] * 30]
        for _ in range(2):
            with pytest.raises(CacheFull):
                backend.extend([Entry(2, 0, TEXT[:36], 0, wide)])
        assert [backend.length(slot) for slot in range(3)] == [8, 225, 0]
        backend.keep(0, [9, 11])
        later = backend.extend([Entry(0, 10, TEXT[:2], 0)])[0].copy()
        backend.release(1)
        expected = backend.extend([Entry(1, 0, [*TEXT[:8], TEXT[9], TEXT[11], *TEXT[:2]], 10)])[0]
        assert np.abs(later - expected).max() < 0.25


@given(
    kernels=st.lists(st.sampled_from([4, 8, 16, 32, ONE_PATH]), unique=True).map(sorted),
    widest=st.integers(2, 80),
    blind=st.integers(0, 7),
)
def test_trials_find_the_first_width_with_another_kernel(kernels: list[int], widest: int, blind: int) -> None:
    """Also where one of the rows (`blind`) happens to be the same with each kernel."""

    def run(start: int, end: int) -> Logits:
        assert 0 <= start < end <= widest
        kernel = sum(width <= end - start for width in kernels)
        return np.array([[at, 0 if at == blind else kernel] for at in range(start, end)], np.float32)

    changes = [width for width in kernels if width <= widest]
    assert equal_up_to(run, widest) == (changes[0] - 1 if changes else ONE_PATH)


LONG_TEXT = [5 + 7 * at % 190 for at in range(80)]


@pytest.mark.parametrize("threads", [1, 2])
def test_widths_of_passes_do_not_matter_with_k_quants(quantised: Path, threads: int) -> None:
    options = LoadOptions(quantised, 2, 96, batch_tokens=96, threads=threads, deterministic=True)
    with closing(load("llama_cpp", options)) as backend:
        whole = backend.extend([Entry(0, 0, LONG_TEXT, 0)])[0].copy()
        for width in (1, 2, 3, 5, 8, 9, 16, 40):
            parts = [
                backend.extend([Entry(1, at, LONG_TEXT[at : at + width], 0)])[0].copy()
                for at in range(0, len(LONG_TEXT), width)
            ]
            assert np.array_equal(np.concatenate(parts), whole), f"passes of {width} tokens"


@pytest.mark.parametrize(("before", "after"), [(None, "0"), ("1", "1")])
def test_k_quants_have_one_kernel_unless_the_user_says_otherwise(
    before: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GGML_CPU_TILED_MM", "")  # so that it is restored
    monkeypatch.delenv("GGML_CPU_TILED_MM")
    if before is not None:
        monkeypatch.setenv("GGML_CPU_TILED_MM", before)
    with closing(load("llama_cpp", LoadOptions(DEFAULT_DRAFT, 1, 64, threads=1))):
        assert os.environ.get("GGML_CPU_TILED_MM") == before
    with closing(load("llama_cpp", LoadOptions(DEFAULT_DRAFT, 1, 64, threads=1, deterministic=True))):
        assert os.environ["GGML_CPU_TILED_MM"] == after


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
