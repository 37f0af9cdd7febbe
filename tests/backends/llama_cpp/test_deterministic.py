"""`deterministic`: the logits of a model in K-quants do not depend on how its tokens are divided into passes."""

import os
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from backends.registry import load
from models import DEFAULT_DRAFT
from specpair.engines.backend import Entry
from specpair.engines.load_options import LoadOptions

TOKENS = [5 + 7 * at % 190 for at in range(80)]


@pytest.mark.parametrize("threads", [1, 2])
def test_widths_of_passes_do_not_matter_with_k_quants(quantised: Path, threads: int) -> None:
    options = LoadOptions(quantised, 2, 96, batch_tokens=96, threads=threads, deterministic=True)
    with closing(load("llama_cpp", options)) as backend:
        whole = backend.extend([Entry(0, 0, TOKENS, 0)])[0].copy()
        for width in (1, 2, 3, 5, 8, 9, 16, 40):
            parts = [
                backend.extend([Entry(1, at, TOKENS[at : at + width], 0)])[0].copy()
                for at in range(0, len(TOKENS), width)
            ]
            assert np.array_equal(np.concatenate(parts), whole), f"passes of {width} tokens"


def test_a_kept_prompt_gives_the_bits_of_the_first_reading_with_k_quants(quantised: Path) -> None:
    options = LoadOptions(quantised, 3, 96, batch_tokens=96, threads=1, deterministic=True)
    with closing(load("llama_cpp", options)) as backend:
        backend.extend([Entry(2, 0, TOKENS[40:], 40)])  # another text, which ends later and frees its cells
        first = backend.extend([Entry(0, 0, TOKENS[:70], 69)])[0].copy()
        backend.copy(0, 1, 69)
        backend.release(0)
        backend.release(2)
        assert np.array_equal(backend.extend([Entry(1, 69, TOKENS[69:70], 0)])[0], first)


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
