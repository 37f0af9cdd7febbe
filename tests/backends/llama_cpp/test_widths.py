"""Which widths of passes have the same bits: all where `deterministic`, else by the type of the weights."""

import os
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.llama_cpp.backend import ONE_PATH, equal_up_to
from backends.registry import load
from models import DEFAULT_DRAFT
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.load_options import LoadOptions

TOKENS = [5 + 7 * at % 190 for at in range(24)]


def _in_passes(backend: Backend, slot: int, width: int) -> Logits:
    """The logits after each of TOKENS, fed in passes of `width` tokens to an empty slot."""
    parts = [
        backend.extend([Entry(slot, at, TOKENS[at : at + width], 0)])[0].copy() for at in range(0, len(TOKENS), width)
    ]
    backend.release(slot)
    return np.concatenate(parts)


def test_passes_of_float_weights_agree_where_deterministic(in_floats: Path) -> None:
    with closing(load("llama_cpp", LoadOptions(in_floats, 2, 64, threads=1, deterministic=True))) as backend:
        one_each = _in_passes(backend, 0, 1)
        for width in (2, 3, 8, 24):
            assert np.array_equal(_in_passes(backend, 1, width), one_each), f"passes of {width} tokens"
        last = backend.extend([Entry(0, 0, TOKENS, len(TOKENS) - 1)])[0]  # one row: the last layer is narrower
        assert np.array_equal(last, one_each[-1:])


def test_generated_tokens_are_read_again_in_pieces_only_if_these_agree(quantised: Path, in_floats: Path) -> None:
    for path in (quantised, in_floats):
        with closing(load("llama_cpp", LoadOptions(path, 1, 64, threads=1))) as backend:
            assert backend.even_width is None
    shipped = load("llama_cpp", LoadOptions(DEFAULT_DRAFT, 2, 64, threads=1))
    with closing(shipped) as backend:
        assert backend.even_width == ONE_PATH
        assert np.array_equal(_in_passes(backend, 1, len(TOKENS)), _in_passes(backend, 0, 1))


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


def test_a_kept_prompt_gives_the_bits_of_the_first_reading_with_k_quants(quantised: Path) -> None:
    options = LoadOptions(quantised, 3, 96, batch_tokens=96, threads=1, deterministic=True)
    with closing(load("llama_cpp", options)) as backend:
        backend.extend([Entry(2, 0, LONG_TEXT[40:], 40)])  # another text, which ends later and frees its cells
        first = backend.extend([Entry(0, 0, LONG_TEXT[:70], 69)])[0].copy()
        backend.copy(0, 1, 69)
        backend.release(0)
        backend.release(2)
        assert np.array_equal(backend.extend([Entry(1, 69, LONG_TEXT[69:70], 0)])[0], first)


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
