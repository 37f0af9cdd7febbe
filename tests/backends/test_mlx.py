"""The mlx backend: logits, model families, threads, memory, refusals. tests/conformance tests the contract."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.registry import load
from specpair.engines.backend import Backend, Entry
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from tests.models.conftest import TinyModel, reference_logits, tiny_tokenizer

pytest.importorskip("mlx_lm", reason="needs the extra in requirements/mlx.txt")

import mlx.core as mx  # noqa: E402 - it needs the extra
from mlx.utils import tree_map  # noqa: E402
from mlx_lm.utils import _get_classes, load_model, save_model  # noqa: E402

from backends.mlx import MlxBackend  # noqa: E402

pytestmark = pytest.mark.engine("mlx")

TEXT = [int(token) for token in np.random.default_rng(5).integers(2, 260, 120)]
OPTIONS = LoadOptions(slots=3, context_length=128, batch_tokens=64, dtype="float32")
SMALL = {
    "vocab_size": 264,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "layer_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
}
YARN = {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 128}
LATENT = {"num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "qwen2": {},
    "qwen3": {},
    "gemma": {},
    "phi3": {},
    "olmo2": {},
    "starcoder2": {"norm_epsilon": 1e-5},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v2": {**LATENT, "v_head_dim": 16, "moe_intermediate_size": 32, "rope_scaling": YARN},
    "gpt2": {"n_ctx": 256, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 256, "layer_norm_epsilon": 1e-5},
}
WITHOUT_TREES = {"gpt2"}  # it looks positions up in a table, by the first of each line


def random_folder(folder: Path, family: str, **changes: Any) -> Path:
    """A model of any mlx-lm family, with random weights and the tiny tokenizer."""
    config = {**SMALL, "model_type": family, **changes}
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(config))
    key = iter(range(10**6))
    model.update(
        tree_map(
            lambda weight: (
                mx.random.normal(weight.shape, key=mx.random.key(next(key))) * 2 * weight.shape[-1] ** -0.5
                if weight.ndim > 1
                else weight
            ),
            model.parameters(),
        )
    )
    save_model(folder, model)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tiny_tokenizer()))
    return folder


def class_of(folder: Path) -> Any:
    """The class of the model in a folder."""
    return type(load_model(folder)[0])


@contextmanager
def opened(folder: Path, **changes: Any) -> Iterator[MlxBackend]:
    with closing(MlxBackend(replace(OPTIONS, model=folder, **changes))) as backend:
        yield backend


def fed(backend: Backend, tokens: Sequence[int], widths: Sequence[int] = (64,)) -> np.ndarray[Any, Any]:
    """Logits after each of `tokens`, fed in pieces of these widths in turn."""
    parts, at, turn = [], 0, 0
    while at < len(tokens):
        piece = tokens[at : at + widths[turn % len(widths)]]
        parts.append(backend.extend([Entry(1, at, piece, 0)])[0])
        at, turn = at + len(piece), turn + 1
    return np.concatenate(parts)


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}, {"num_key_value_heads": 2}], ids=str)
def test_logits_equal_the_reference(tmp_path: Path, changes: dict[str, Any]) -> None:
    model = TinyModel(tmp_path / "tiny", **changes)
    expected = reference_logits(model.config, model.weights, TEXT)
    with opened(model.folder) as backend:
        got = fed(backend, TEXT, [1, 7, 2, 40, 1, 16])
    assert got.dtype == np.float32
    assert np.abs(expected).max() > 2.0
    assert np.abs(got - expected).max() < 1e-4


def test_slots_at_different_positions_share_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TinyModel(tmp_path / "tiny")
    expected = reference_logits(model.config, model.weights, TEXT)
    with opened(model.folder) as backend:
        passes = []
        kind = class_of(model.folder)
        run = kind.__call__

        def noting(model: Any, tokens: Any, cache: Any) -> Any:
            passes.append(tokens.shape)
            return run(model, tokens, cache=cache)

        monkeypatch.setattr(kind, "__call__", noting)
        backend.extend([Entry(0, 0, TEXT[:50], 50)])
        assert passes == [(1, 49), (1, 1)], "the first of them computes no logits"
        backend.extend([Entry(2, 0, TEXT[:9], 8)])
        backend.extend([Entry(1, 0, TEXT[:3], 2), Entry(2, 7, TEXT[7:12], 1), Entry(0, 50, TEXT[50:51], 0)])
        got = backend.extend([Entry(1, 3, TEXT[3:4], 0), Entry(0, 49, TEXT[49:60], 3), Entry(2, 12, TEXT[12:16], 0)])
        assert passes[3:] == [(3, 5), (3, 11)]
    for logits, place in zip(got, (slice(3, 4), slice(52, 60), slice(12, 16)), strict=True):
        assert np.abs(logits - expected[place]).max() < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_its_uncached_logits(tmp_path: Path, family: str) -> None:
    folder = random_folder(tmp_path / family, family, **FAMILIES[family])
    model, _ = load_model(folder)
    expected = np.array(model(mx.array([TEXT]))[0])
    assert np.abs(expected).max() > 0.5
    with opened(folder) as backend:
        backend.extend([Entry(0, 0, TEXT[:30], 30), Entry(2, 0, TEXT[:7], 7)])
        shared = backend.extend([Entry(0, 30, TEXT[30:32], 0), Entry(1, 0, TEXT[:1], 0), Entry(2, 6, TEXT[6:15], 0)])
        results = [*shared, fed(backend, TEXT, [1, 7, 40, 1, 16])]
        assert backend.takes_trees is (family not in WITHOUT_TREES)
        if backend.takes_trees:
            tokens = [TEXT[29], 3, 4, TEXT[30], 5, TEXT[31]]
            (rows,) = backend.extend([Entry(0, 29, tokens, 0, [1, 2, 3, 1, 2])])
            backend.keep(0, [3, 5])
            results += [rows[[0, 3, 5]], *backend.extend([Entry(0, 32, TEXT[32:34], 0)])]
    places = (slice(30, 32), slice(0, 1), slice(6, 15), slice(0, 120), slice(29, 32), slice(32, 34))
    for logits, place in zip(results, places[: len(results)], strict=True):
        assert np.abs(logits - expected[place]).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": None}, "the mlx backend needs a model: a folder in Hugging Face layout$"),
        ({"model": Path("/nowhere")}, "no such model: /nowhere: the mlx backend reads a folder in Hugging Face layout"),
        ({"device": "gpu"}, "device: the mlx backend has no such choice, leave it out"),
        ({"threads": 2}, "threads: the mlx backend has no such choice"),
        ({"gpu_layers": 3}, "gpu_layers: the mlx backend has no such choice"),
        ({"kv_type": "q8_0"}, "kv_type: the mlx backend has no such choice"),
        ({"deterministic": True}, "deterministic: the mlx backend has no such choice"),
        ({"compile": True}, "compile: the mlx backend has no such choice"),
        ({"dtype": "int5"}, "could not load .*int5"),
        ({"slots": 10**7}, r"the KV cache of .* takes \d+\.\d GiB, .* are available: lower slots or context"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    folder = TinyModel(tmp_path / "tiny").folder
    with pytest.raises(ModelLoadError, match=words):
        load("mlx", replace(OPTIONS, **{"model": folder, **changes}))


MAMBA = {"state_size": 8, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "time_step_rank": 8}
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "recurrent": ("mamba", MAMBA, "mlx-lm's ArraysCache, which cannot roll back rejected tokens"),
    "windows": (
        "llama",
        {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 24},
        "mlx-lm's KVCache, RotatingKVCache, which cannot roll back rejected tokens: choose a model with full",
    ),
    "one position for all slots": (
        "gpt_bigcode",
        {"n_embd": 64, "n_layer": 2, "n_inner": 96, "n_head": 4, "n_positions": 256, "layer_norm_epsilon": 1e-5},
        "mlx-lm could not load .*refused: ",
    ),
    "positions that change with the text": (
        "llama",
        {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
        "mlx-lm could not load .*refused: ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_cannot_roll_back_or_batch_are_refused(tmp_path: Path, name: str) -> None:
    family, changes, words = REFUSED[name]
    folder = random_folder(tmp_path / "refused", family, **changes)
    with pytest.raises(ModelLoadError, match=words):
        load("mlx", replace(OPTIONS, model=folder))
