"""The neuron_legacy backend refuses options and folders that its library does not support or silently ignores."""

import sys
from pathlib import Path
from typing import Any

import pytest

from backends import registry
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from tests.backends.neuron_legacy.conftest import Load
from tests.models.conftest import TinyModel

pytestmark = pytest.mark.engine("torch")  # the stand-in needs torch


def refusal(load: Load, **options: Any) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load(**options)
    return str(caught.value)


NO_CHOICE = {"gpu_layers": 3, "threads": 2, "mmap": False, "flash_attention": False, "deterministic": True}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(
            ({key: NO_CHOICE[key]}, f"{key}: the neuron_legacy backend has no such choice, leave it out")
            for key in NO_CHOICE
        ),
        ({"kv_type": "q8_0"}, "kv_type q8_0: neuron_legacy caches in the number type of the model: set dtype"),
        ({"device": "cuda"}, "device 'cuda': neuron_legacy runs on 'neuron' only"),
        ({"dtype": "int8"}, "dtype 'int8' is unknown: choose one of float32, bfloat16, float16"),
        ({"slots": -1}, "slots is -1, at least 1 is needed"),
        ({"tensor_parallel": 0}, "tensor_parallel is 0, at least 1 is needed"),
        ({"context_length": 1}, "context is 1, a prompt and an answer take at least 2 tokens"),
    ],
)
def test_unsupported_options_are_refused(load: Load, options: dict[str, Any], words: str) -> None:
    assert refusal(load, **options) == words


def test_other_paths_are_refused_with_the_reason(load: Load, tiny: TinyModel, tmp_path: Path) -> None:
    assert refusal(load, model=None) == "the neuron_legacy backend needs a model: a folder in Hugging Face layout"
    none, file = tmp_path / "none", tiny.folder / "config.json"
    reads = "the neuron_legacy backend reads a folder in Hugging Face layout"
    assert refusal(load, model=none) == f"no such model: {none}: {reads}"
    assert refusal(load, model=file) == f"{file} is a file: {reads}"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert refusal(load, model=empty) == f"{empty} is no model folder: it has no config.json"
    for text, words in (("{", "is no readable JSON: "), ("[]", "holds no JSON object")):
        file.write_text(text, encoding="utf-8")
        assert refusal(load).startswith(f"{file} {words}")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"model_type": "qwen2"},
            "{folder} holds a model of type 'qwen2': neuron_legacy runs only 'llama', the one family whose speculative "
            "passes it knows",
        ),
        (
            {"hidden_size": None, "vocab_size": 0, "num_hidden_layers": "2"},
            "{folder}/config.json does not say hidden_size, num_hidden_layers, vocab_size as a number",
        ),
        ({"rope_scaling": "x"}, "{folder}/config.json: rope_scaling is 'x', expected is an object"),
    ],
)
def test_unsupported_models_are_refused(load: Load, tiny: TinyModel, changes: dict[str, Any], words: str) -> None:
    tiny.write_config(**changes)
    assert refusal(load) == words.format(folder=tiny.folder)


@pytest.mark.parametrize(
    ("changes", "entry"),
    [
        ({"num_attention_heads": 3, "num_key_value_heads": 3}, "hidden_size 64 with 3 heads"),
        ({"quantization_config": {"quant_method": "fp8", "bits": 8}}, "quantization_config of 'fp8'"),
        ({"head_dim": 64}, "head_dim 64 with heads of hidden_size / num_attention_heads = 32"),
        ({"attention_bias": True}, "attention_bias true"),
        ({"mlp_bias": True}, "mlp_bias true"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_type 'yarn'"),
        ({"rope_scaling": {"type": "linear"}}, "rope_type 'linear'"),
    ],
)
def test_config_entries_that_the_library_ignores_are_refused(
    load: Load, tiny: TinyModel, changes: dict[str, Any], entry: str
) -> None:
    tiny.write_config(**changes)
    assert refusal(load) == (
        f"{tiny.folder / 'config.json'} says {entry}, which transformers-neuronx ignores: the model would run with "
        "wrong logits. Choose another model or backend"
    )


@pytest.mark.parametrize(
    ("rope", "read", "asked"),
    [
        ({"rope_theta": 5e5, "rope_type": "default"}, "(10000.0, 'default')", "(500000.0, 'default')"),
        ({"rope_theta": 1e4, "rope_type": "llama3"}, "(10000.0, 'default')", "(10000.0, 'llama3')"),
    ],
)
def test_rotary_positions_where_the_library_does_not_look_are_refused(
    load: Load, tiny: TinyModel, rope: dict[str, Any], read: str, asked: str
) -> None:
    """As in a folder written or read by transformers 5."""
    del tiny.config["rope_theta"]
    tiny.write_config(rope_parameters=rope)
    assert refusal(load).startswith(
        f"transformers-neuronx read the rotary positions as {read}, the model's are {asked}:"
    )


def test_missing_library_names_the_install_command(tiny: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers_neuronx", None)  # as if it were not installed
    with pytest.raises(
        ModelLoadError, match=r"transformers_neuronx is not installed: run `pip install -r requirements/n"
    ):
        registry.load("neuron_legacy", LoadOptions(model=tiny.folder))
