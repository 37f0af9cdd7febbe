from pathlib import Path

import pytest

from backends.llama_cpp.library import lib
from backends.trial.tiny_llama import TinyModel, write_tiny_gguf


@pytest.fixture(scope="session")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama in Q4_K_M."""
    return _tiny(tmp_path_factory.mktemp("quantised"), lib.LLAMA_FTYPE_MOSTLY_Q4_K_M)


@pytest.fixture(scope="session")
def in_floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama in bfloat16."""
    return _tiny(tmp_path_factory.mktemp("floats"), lib.LLAMA_FTYPE_MOSTLY_BF16)


def _tiny(folder: Path, file_type: int) -> Path:
    model = TinyModel(folder / "tiny", hidden_size=256, intermediate_size=256)
    write_tiny_gguf(model, folder / "tiny.gguf")
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.nthread = file_type, 1
    path = folder / f"tiny-{file_type}.gguf"
    assert lib.llama_model_quantize(str(folder / "tiny.gguf").encode(), str(path).encode(), params) == 0
    return path
