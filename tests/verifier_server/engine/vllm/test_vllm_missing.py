"""What is said where vLLM is not installed."""

import importlib.util

import pytest

from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from verifier_server.engine.vllm import load as loading
from verifier_server.settings import Settings


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_error_names_the_missing_package() -> None:
    with pytest.raises(ModelLoadError, match=r"the vllm engine needs vllm, .*vllm"):
        loading.load(LoadOptions(), Settings(backend="vllm"))
