"""`deterministic`: the logits of a model in K-quants do not depend on how its tokens are divided into passes."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from backends.base import Entry, LoadOptions
from backends.llama_cpp.library import lib
from backends.registry import load
from backends.trial.tiny_gguf import write_tiny_gguf
from backends.trial.tiny_llama import TinyModel

TOKENS = [5 + 7 * at % 190 for at in range(80)]


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantised")
    model = TinyModel(folder / "tiny", hidden_size=256, intermediate_size=256)
    write_tiny_gguf(model, folder / "tiny.gguf")
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.nthread = lib.LLAMA_FTYPE_MOSTLY_Q4_K_M, 1
    path = folder / "tiny-q4_k_m.gguf"
    assert lib.llama_model_quantize(str(folder / "tiny.gguf").encode(), str(path).encode(), params) == 0
    return path


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
