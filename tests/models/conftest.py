"""Fixtures for tests of model files: llama.cpp, a reference Llama in NumPy, and a tiny model folder."""

import ctypes
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models.huggingface import SPLIT_PATTERN

Floats = NDArray[np.float32]


class Engine:
    """A model file loaded by llama.cpp, with one context."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        import llama_cpp

        self._api = api = llama_cpp
        self._model = api.llama_model_load_from_file(str(path).encode(), api.llama_model_default_params())
        assert self._model, f"llama.cpp does not load {path}"
        parameters = api.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = 512
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self._context = api.llama_init_from_model(self._model, parameters)
        self._vocabulary = api.llama_model_get_vocab(self._model)
        self.size: int = api.llama_vocab_n_tokens(self._vocabulary)

    def logits(self, ids: Sequence[int], start: int = 0) -> Floats:
        """Feed the ids from position `start` on. Returns a row of logits for each."""
        batch = self._api.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for index, token in enumerate(ids):
            batch.token[index], batch.pos[index], batch.logits[index] = token, start + index, 1
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
        self._api.llama_memory_seq_rm(self._api.llama_get_memory(self._context), 0, start, -1)
        assert self._api.llama_decode(self._context, batch) == 0
        view = np.ctypeslib.as_array(self._api.llama_get_logits(self._context), shape=(len(ids), self.size))
        result = np.array(view, dtype=np.float32)
        self._api.llama_batch_free(batch)
        return result

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of the text; with ``special``, the begin token is added if the file says so."""
        raw = text.encode()
        buffer = (self._api.llama_token * (len(raw) + 2))()
        count = self._api.llama_tokenize(self._vocabulary, raw, len(raw), buffer, len(buffer), special, False)
        return list(buffer[:count])

    def decode(self, ids: Sequence[int]) -> bytes:
        """The concatenated bytes of the ids."""
        buffer = ctypes.create_string_buffer(512)
        text = b""
        for token in ids:
            count = self._api.llama_token_to_piece(self._vocabulary, token, buffer, 512, 0, True)
            text += buffer.raw[:count]
        return text

    def close(self) -> None:
        """Free the context, then the model."""
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)


@pytest.fixture
def engine() -> Iterator[Callable[..., Engine]]:
    """Opens model files with llama.cpp; they are closed when the test ends."""
    pytest.importorskip("backends.llama_cpp.library", reason="needs llama-cpp-python")  # also silences its log
    opened: list[Engine] = []

    def open_model(path: Path, threads: int = 1) -> Engine:
        opened.append(Engine(path, threads))
        return opened[-1]

    yield open_model
    for each in opened:
        each.close()


def rotary_speeds(config: Mapping[str, Any]) -> NDArray[np.float64]:
    """The angle per position of each pair of dimensions, with the scaling of Llama 3 where the config asks for it."""
    half = config["head_dim"] // 2
    speeds = np.asarray(config["rope_theta"] ** (-np.arange(half) / half))
    scaling = config.get("rope_scaling")
    if not scaling:
        return speeds
    assert scaling["rope_type"] == "llama3"
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * speeds / (2 * np.pi)  # within the context trained first
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray(speeds * (kept + (1 - kept) / scaling["factor"]))


def reference_logits(config: Mapping[str, Any], weights: Mapping[str, Floats], ids: Sequence[int]) -> Floats:
    """A Llama forward pass in NumPy, from the papers: weights by Hugging Face names, one row of logits per id."""
    heads, groups = config["num_attention_heads"], config["num_attention_heads"] // config["num_key_value_heads"]
    dim, length = config["head_dim"], len(ids)
    half = dim // 2
    angles = np.outer(np.arange(length), rotary_speeds(config))
    cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
    future = np.triu(np.full((length, length), -np.inf), 1)

    def norm(x: NDArray[Any], name: str) -> NDArray[Any]:
        scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + config["rms_norm_eps"])
        return np.asarray(x / scale * weights[name])

    def rotate(x: NDArray[Any]) -> NDArray[Any]:
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)

    x = weights["model.embed_tokens.weight"].astype(np.float64)[list(ids)]
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        y = norm(x, f"{layer}.input_layernorm.weight")
        query, key, value = (
            (y @ weights[f"{layer}.self_attn.{part}_proj.weight"].T).reshape(length, -1, dim) for part in "qkv"
        )
        key, value = np.repeat(rotate(key), groups, axis=1), np.repeat(value, groups, axis=1)
        scores = np.einsum("qhd,khd->hqk", rotate(query), key) / np.sqrt(dim) + future
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        y = np.einsum("hqk,khd->qhd", scores, value).reshape(length, heads * dim)
        x = x + y @ weights[f"{layer}.self_attn.o_proj.weight"].T
        y = norm(x, f"{layer}.post_attention_layernorm.weight")
        gate = y @ weights[f"{layer}.mlp.gate_proj.weight"].T
        up = y @ weights[f"{layer}.mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[f"{layer}.mlp.down_proj.weight"].T
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return np.asarray(norm(x, "model.norm.weight") @ head.T, dtype=np.float32)


@pytest.fixture
def reference() -> Callable[..., Floats]:
    """The NumPy forward pass: ``reference(config, weights, ids)``."""
    return reference_logits


def tiny_weights(config: Mapping[str, Any]) -> dict[str, Floats]:
    """Random weights for a config, rounded to float16, so that the file holds exactly these."""
    generator = np.random.default_rng(7)
    hidden, ffn, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        shapes |= {
            f"{layer}.input_layernorm.weight": (hidden,),
            f"{layer}.self_attn.q_proj.weight": (queries, hidden),
            f"{layer}.self_attn.k_proj.weight": (keys, hidden),
            f"{layer}.self_attn.v_proj.weight": (keys, hidden),
            f"{layer}.self_attn.o_proj.weight": (hidden, queries),
            f"{layer}.post_attention_layernorm.weight": (hidden,),
            f"{layer}.mlp.gate_proj.weight": (ffn, hidden),
            f"{layer}.mlp.up_proj.weight": (ffn, hidden),
            f"{layer}.mlp.down_proj.weight": (hidden, ffn),
        }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    weights = {}
    for name, shape in shapes.items():
        values = (
            generator.normal(size=shape) * shape[-1] ** -0.5 if len(shape) == 2 else generator.uniform(0.5, 2, shape)
        )
        weights[name] = values.astype(np.float16).astype(np.float32)
    return weights


def tiny_tokenizer() -> dict[str, Any]:
    """A byte-level BPE in the layout of ``tokenizer.json``: two control ids, the 256 bytes and three merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = sorted([chr(byte) for byte in printable] + [chr(256 + index) for index in range(len(others))])
    merges = [["\u0120", "\u0120"], ["i", "f"], ["\u0120", "if"]]
    tokens = ["<|begin|>", "<|end|>", *alphabet, *("".join(merge) for merge in merges)]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "added_tokens": [{"id": index, "content": tokens[index], "special": True, **plain} for index in (0, 1)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": SPLIT_PATTERN}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "model": {
            "type": "BPE",
            "byte_fallback": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": merges,
        },
    }


class TinyModel:
    """A tiny model folder, with its config and weights."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder
        self.config: dict[str, Any] = {
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "vocab_size": 264,  # three more than the tokenizer names
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "tie_word_embeddings": True,
            **changes,
        }
        self.weights = tiny_weights(self.config)
        folder.mkdir(exist_ok=True)
        self.write_config()
        (folder / "tokenizer.json").write_text(json.dumps(tiny_tokenizer()), encoding="utf-8")
        self.write_weights()

    def write_config(self, **changes: Any) -> None:
        """Write ``config.json`` with these entries changed."""
        (self.folder / "config.json").write_text(json.dumps({**self.config, **changes}), encoding="utf-8")

    def write_weights(self) -> None:
        """Write ``model.safetensors``: the length of a header in JSON, the header, and the weights in float16."""
        header: dict[str, Any] = {}
        content = b""
        for name, data in self.weights.items():
            start, content = len(content), content + data.astype("<f2").tobytes()
            header[name] = {"dtype": "F16", "shape": list(data.shape), "data_offsets": [start, len(content)]}
        encoded = json.dumps(header).encode()
        path = self.folder / "model.safetensors"
        path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + content)


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., TinyModel]:
    """Makes a tiny model folder: ``tiny(**changes_of_its_config)``."""
    return lambda **changes: TinyModel(tmp_path / "tiny", **changes)
