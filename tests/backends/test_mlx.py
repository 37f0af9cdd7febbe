"""The mlx backend: logits, model families, threads, memory, refusals. tests/conformance tests the contract."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import pytest

from backends.llama_cpp.model import read_gguf_vocabulary
from backends.registry import load, room
from models.export import export_hf
from specpair.engines.backend import Backend, Entry
from specpair.engines.errors import EngineFailure, ModelLoadError
from specpair.engines.load_options import LoadOptions
from tests.models.conftest import TinyModel, reference_logits, tiny_tokenizer

pytest.importorskip("mlx_lm", reason="needs the extra in requirements/mlx.txt")

import mlx.core as mx  # noqa: E402 - it needs the extra
from mlx.utils import tree_map  # noqa: E402
from mlx_lm.utils import _get_classes, load_model, quantize_model, save_model  # noqa: E402

from backends.mlx import MlxBackend  # noqa: E402

pytestmark = pytest.mark.engine("mlx")

T = TypeVar("T")
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


def on_a_thread(do: Callable[[], T]) -> T:
    """The result of `do` on a new thread."""
    results: list[T] = []
    thread = Thread(target=lambda: results.append(do()))
    thread.start()
    thread.join()
    return results[0]


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


def test_rope_parameters_of_transformers_5_are_used(tmp_path: Path) -> None:
    """mlx-lm does not read them for a Llama, and would silently use the default base."""
    model = TinyModel(tmp_path / "tiny", rope_theta=500.0)
    expected = reference_logits(model.config, model.weights, TEXT)
    del model.config["rope_theta"]
    rope: dict[str, Any] = {"rope_theta": 500.0, "rope_type": "default"}
    model.write_config(rope_parameters=rope)
    with opened(model.folder) as backend:
        assert np.abs(fed(backend, TEXT) - expected).max() < 1e-4
    rope |= {"rope_type": "linear", "factor": 1.0}
    model.write_config(rope_parameters=rope)
    with opened(model.folder) as backend:
        assert np.abs(fed(backend, TEXT) - expected).max() < 1e-4
    model.write_config(rope_parameters={**rope, "factor": 3.0})
    with opened(model.folder) as backend:
        assert np.abs(fed(backend, TEXT) - expected).max() > 0.5


def test_quantised_folder_equals_its_dequantised_weights(tmp_path: Path) -> None:
    """The reference uses the dequantised weights."""
    model = TinyModel(tmp_path / "tiny")
    module, config = load_model(model.folder)
    module.set_dtype(mx.float32)
    module, config = quantize_model(module, config, 32, 4)
    for name in list(model.weights):
        path = name.removesuffix(".weight")
        layer = dict(module.named_modules())[path]
        if hasattr(layer, "scales"):
            plain = mx.dequantize(layer.weight, layer.scales, layer.biases, group_size=32, bits=4)
            model.weights[name] = np.array(plain.astype(mx.float32))
    expected = reference_logits(model.config, model.weights, TEXT)
    (model.folder / "model.safetensors").unlink()
    save_model(model.folder, module)
    (model.folder / "config.json").write_text(json.dumps(config))
    with opened(model.folder) as backend:
        assert np.abs(fed(backend, TEXT, [1, 5, 30]) - expected).max() < 1e-3
    with opened(model.folder, dtype="bfloat16") as backend:
        assert np.abs(fed(backend, TEXT, [1, 5, 30]) - expected).max() < 0.2 * np.abs(expected).max()


def test_dtype_option_changes_the_number_type(tmp_path: Path) -> None:
    model = TinyModel(tmp_path / "tiny")
    with (
        opened(model.folder, dtype="bfloat16") as half,
        opened(model.folder) as full,
        opened(model.folder, dtype=None) as own,
    ):
        assert full.kv_bytes == 2 * half.kv_bytes == 2 * own.kv_bytes == 3 * 128 * 2 * 2 * 32 * 4
        exact, coarse = fed(full, TEXT), fed(half, TEXT)
    assert coarse.dtype == np.float32
    assert 0 < np.abs(exact - coarse).max() < 0.1 * np.abs(exact).max()


def test_vocabulary_equals_that_of_the_gguf_file_made_of_the_folder(tmp_path: Path) -> None:
    model = TinyModel(tmp_path / "tiny")
    (model.folder / "chat_template.jinja").write_text("{{ messages }}")
    export_hf(model.folder, tmp_path / "tiny.gguf")
    theirs, _ = read_gguf_vocabulary(tmp_path / "tiny.gguf")
    with opened(model.folder, context_length=None) as backend:
        assert backend.vocabulary.fingerprint == theirs.fingerprint
        assert (backend.name, backend.model_name, backend.chat_template) == ("mlx", "tiny", "{{ messages }}")
        assert backend.context_length == 512


def test_number_of_slots_is_chosen_from_memory(tmp_path: Path) -> None:
    progress: list[float] = []
    model = TinyModel(tmp_path / "tiny")
    with closing(MlxBackend(replace(OPTIONS, model=model.folder, slots=None), progress.append)) as backend:
        assert backend.slots == 16
        assert progress == [1.0]
        backend.close()


def test_different_threads_may_use_the_backend_in_turn(tmp_path: Path) -> None:
    """As in the verifier, where one thread loads the model and another runs it. MLX arrays belong to their thread."""
    model = TinyModel(tmp_path / "tiny")
    expected = reference_logits(model.config, model.weights, TEXT)
    backend = on_a_thread(lambda: MlxBackend(replace(OPTIONS, model=model.folder)))
    on_a_thread(lambda: backend.extend([Entry(0, 0, TEXT[:40], 40)]))
    on_a_thread(lambda: backend.copy(0, 2, 30))
    batch = [Entry(0, 40, TEXT[40:44], 0), Entry(2, 30, TEXT[30:31], 0)]
    got = on_a_thread(lambda: backend.extend(batch))
    on_a_thread(backend.close)
    for logits, place in zip(got, (slice(40, 44), slice(30, 31)), strict=True):
        assert np.abs(logits - expected[place]).max() < 1e-4


def test_copy_takes_memory_only_when_written_to(tmp_path: Path) -> None:
    model = TinyModel(tmp_path / "tiny")
    with opened(model.folder) as backend:
        backend.extend([Entry(0, 0, TEXT[:40], 40)])
        before = mx.get_active_memory()
        backend.copy(0, 1, 40)
        assert mx.get_active_memory() == before
        backend.extend([Entry(1, 40, TEXT[:1], 1)])
        assert mx.get_active_memory() > before
        backend.release(1)
        assert mx.get_active_memory() <= before


def test_prompt_computes_only_wanted_logits(tmp_path: Path) -> None:
    model = TinyModel(tmp_path / "tiny", vocab_size=50_000)
    with opened(model.folder) as backend:
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        backend.extend([Entry(0, 0, TEXT[:64], 63)])
        assert mx.get_peak_memory() - before < 64 * 50_000 * 4 / 8


@pytest.mark.parametrize("when", ["called", "evaluated"])
def test_failing_pass_raises_engine_failure_and_empties_its_slots(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = TinyModel(tmp_path / "tiny")
    elsewhere = on_a_thread(lambda: mx.ones((1, 1, 264)) + 1)  # only that thread can evaluate it
    with opened(model.folder) as backend:
        whole = fed(backend, TEXT[:5])
        backend.extend([Entry(0, 0, TEXT[:5], 0), Entry(1, 0, TEXT[:4], 0)])
        kind = class_of(model.folder)
        run = kind.__call__

        def fail(model: Any, tokens: Any, cache: Any) -> Any:
            return run(model, tokens, cache) + (elsewhere if when == "evaluated" else mx.ones(7))

        with monkeypatch.context() as patch:
            patch.setattr(kind, "__call__", fail)
            words = "RuntimeError: There is no Stream" if when == "evaluated" else "ValueError: "
            with pytest.raises(EngineFailure, match=f"MLX failed in a forward pass: {words}"):
                backend.extend([Entry(0, 5, TEXT[5:6], 0)])
        assert [backend.length(slot) for slot in (0, 1)] == [0, 4]
        assert np.abs(backend.extend([Entry(0, 0, TEXT[:5], 0)])[0] - whole).max() < 1e-4


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


def test_sliding_window_ignored_by_mlx_lm_limits_the_context(tmp_path: Path) -> None:
    model = TinyModel(tmp_path / "tiny", sliding_window=100)
    with pytest.raises(ModelLoadError, match="context 128: mlx-lm ignores the window of 100 tokens: at"):
        load("mlx", replace(OPTIONS, model=model.folder))
    with opened(model.folder, context_length=None) as backend:
        assert backend.context_length == 100
    model.write_config(use_sliding_window=False)
    with opened(model.folder, context_length=None) as backend:
        assert backend.context_length == 512


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda model: (model.folder / "model.safetensors").unlink(),
            r"has no weights in \*\.safetensors: convert them",
        ),
        (
            lambda model: (model.folder / "model.safetensors").write_bytes(b"not weights"),
            "could not load .*RuntimeError",
        ),
        (lambda model: model.write_config(model_type="gpt_9"), "Model type gpt_9 not supported"),
        (lambda model: model.write_config(num_hidden_layers=3), "could not load .*ValueError: Missing 9 parameters"),
        (lambda model: model.write_config(model_file="evil.py"), "requires importing and running a custom module"),
        (lambda model: (model.folder / "config.json").write_text("{"), "^[^:]*config.json is no readable JSON"),
        (lambda model: (model.folder / "tokenizer.json").unlink(), "has no tokenizer.json"),
    ],
)
def test_unreadable_file_is_named(tmp_path: Path, damage: Callable[[TinyModel], object], words: str) -> None:
    model = TinyModel(tmp_path / "tiny")
    damage(model)
    with pytest.raises(ModelLoadError, match=words):
        load("mlx", replace(OPTIONS, model=model.folder))


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


def test_the_room_for_a_model_is_the_memory_of_the_machine() -> None:
    rooms = {dtype: room("mlx", LoadOptions(dtype=dtype)) for dtype in (None, "float32", "bfloat16")}
    assert {dtype: each and each.weight for dtype, each in rooms.items()} == {None: None, "float32": 4, "bfloat16": 2}
