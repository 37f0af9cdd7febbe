"""Reads a Llama model in Hugging Face layout into a ``Gguf``.

Supports only what ``models.training.train`` writes and similar models: architecture Llama, plain RoPE, one safetensors
file, and a byte-level BPE with the Llama 3 split pattern. For other models the error names llama.cpp's converter, which
supports every family; this one exists because it needs neither PyTorch nor transformers.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import MODEL_ARCH, GGMLQuantizationType, TokenType, get_tensor_name_map, quants
from numpy.typing import NDArray

from models.errors import ExportError
from models.gguf_file import Field, Gguf, Tensor, field_of
from models.safetensors_file import head_dim, llama_shapes, read_tensors
from models.training.corpus import SPLIT_PATTERN

_ELSEWHERE: Final = "convert it with convert_hf_to_gguf.py of llama.cpp"


def read_huggingface(
    folder: Path, *, name: str | None = None, license_id: str | None = None, description: str | None = None
) -> Gguf:
    """Return the model of the folder with float32 tensors. Raises ExportError if it cannot be converted.

    ``tokenizer.json`` may be in the folder or, where a model pair shares it, in the folder's parent.
    """
    config = _json(folder / "config.json")
    _check(config, folder)
    tensors = list(_tensors(config, read_tensors(folder / "model.safetensors"), folder))
    beside = folder / "tokenizer.json"
    tokenizer = beside if beside.exists() else folder.resolve().parent / "tokenizer.json"
    general = {"type": "model", "name": name or folder.resolve().name, "license": license_id}
    fields = {
        **{
            f"general.{key}": field_of(value) for key, value in {**general, "description": description}.items() if value
        },
        **_hyperparameters(config),
        **vocabulary_fields(_json(tokenizer), config, tokenizer),
    }
    return Gguf("llama", fields, tensors)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ExportError(
            f"{path} does not exist: a model folder holds config.json, model.safetensors, tokenizer.json"
        ) from None
    except (ValueError, OSError) as error:
        raise ExportError(f"{path} is not readable JSON ({error})") from error
    if not isinstance(content, dict):
        raise ExportError(f"{path} holds no JSON object")
    return content


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    """The RoPE settings, from either of the two entries where versions of transformers store them."""
    return config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10_000.0)}


def _check(config: dict[str, Any], folder: Path) -> None:
    """Raises ExportError for a model that this module does not support."""
    needed = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    if config.get("model_type") != "llama":
        raise ExportError(f"{folder} holds a {config.get('model_type')!r} model, not llama: {_ELSEWHERE}")
    if missing := [key for key in needed if not isinstance(config.get(key), int)]:
        raise ExportError(f"{folder}/config.json lacks {', '.join(missing)}")
    scaled = config.get("rope_scaling") or _rope(config).get("rope_type", "default") != "default"
    if scaled or config.get("attention_bias") or config.get("mlp_bias") or config.get("hidden_act", "silu") != "silu":
        raise ExportError(f"{folder} uses RoPE scaling, biases or another activation than SiLU: {_ELSEWHERE}")


def _tensors(config: dict[str, Any], weights: dict[str, NDArray[np.float32]], folder: Path) -> Iterator[Tensor]:
    """The weights as tensors under GGUF's names. Raises ExportError for a missing weight or a wrong shape."""
    names, half = get_tensor_name_map(MODEL_ARCH.LLAMA, config["num_hidden_layers"]), head_dim(config) // 2
    for source, shape in llama_shapes(config).items():
        if source not in weights:
            raise ExportError(f"{folder}/model.safetensors lacks {source}, which config.json calls for")
        data = weights[source]
        if data.shape != shape:
            raise ExportError(f"{source} is {data.shape} where config.json calls for {shape}")
        if source.endswith(("q_proj.weight", "k_proj.weight")):
            # Hugging Face's RoPE turns the halves of a head, that of GGUF's llama neighbouring rows.
            data = data.reshape(-1, 2, half, shape[1]).swapaxes(1, 2).reshape(shape)
        yield Tensor(names.get_name(source, (".weight",)), data, GGMLQuantizationType.F32)


def halves_of_heads(rows: NDArray[Any], dim: int) -> NDArray[Any]:
    """The rows of a query or key matrix of GGUF's llama, in the order of Hugging Face and of most other architectures.

    Rows may be blocks of a quantised tensor. ``dim``: rows of a head.
    """
    return rows.reshape(-1, dim // 2, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def huggingface_weights(model: Gguf, config: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    """The float32 weights of a Llama model under their Hugging Face names, in that layout.

    Raises ExportError if the model lacks a weight that ``config``, the contents of its config.json, calls for.
    """
    names, tensors = get_tensor_name_map(MODEL_ARCH.LLAMA, model.layers), {each.name: each for each in model.tensors}
    weights = {}
    for name in llama_shapes(config):
        tensor = tensors.get(names.get_name(name, (".weight",)))
        if tensor is None:
            raise ExportError(f"the model lacks {name}: it is not the model of this config.json")
        data = np.asarray(quants.dequantize(tensor.data, tensor.kind), dtype=np.float32)
        rotated = name.endswith(("q_proj.weight", "k_proj.weight"))
        weights[name] = halves_of_heads(data, head_dim(config)) if rotated else data
    return weights


def _hyperparameters(config: dict[str, Any]) -> dict[str, Field]:
    heads, dim = config["num_attention_heads"], head_dim(config)
    stated = {
        "block_count": config["num_hidden_layers"],
        "context_length": int(config.get("max_position_embeddings", 2048)),
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": int(config.get("num_key_value_heads") or heads),
        "attention.key_length": dim,
        "attention.value_length": dim,
        "attention.layer_norm_rms_epsilon": float(config.get("rms_norm_eps", 1e-6)),
        "rope.dimension_count": dim,
        "rope.freq_base": float(_rope(config).get("rope_theta", 10_000.0)),
        "vocab_size": config["vocab_size"],
    }
    return {f"llama.{key}": field_of(value) for key, value in stated.items()}


def _patterns(step: Any) -> list[str]:
    """All regular expressions in a pre-tokenizer, which can be a sequence of pre-tokenizers."""
    if not isinstance(step, dict):
        return []
    nested = [pattern for inner in step.get("pretokenizers", []) for pattern in _patterns(inner)]
    return nested + ([str(step["pattern"].get("Regex"))] if step.get("type") == "Split" else [])


def vocabulary_fields(tokenizer: dict[str, Any], config: dict[str, Any], path: Path) -> dict[str, Field]:
    """The metadata of a tokenizer.json. Raises ExportError for a tokenizer that this module does not support."""
    model = tokenizer.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE" or model.get("byte_fallback"):
        raise ExportError(f"{path} is no byte-level BPE: {_ELSEWHERE}")
    if _patterns(tokenizer.get("pre_tokenizer")) != [SPLIT_PATTERN] or tokenizer.get("normalizer"):
        raise ExportError(f"{path} does not split text as Llama 3 does: {_ELSEWHERE}")
    size = int(config["vocab_size"])
    tokens = [f"[PAD{index}]" for index in range(size)]  # names of ids that the tokenizer does not use
    types = [int(TokenType.UNUSED)] * size
    try:
        for text, index in model["vocab"].items():
            tokens[index], types[index] = text, int(TokenType.NORMAL)
        for added in tokenizer.get("added_tokens", []):
            kind = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
            tokens[added["id"]], types[added["id"]] = added["content"], int(kind)
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    except IndexError:
        raise ExportError(f"{path} has more ids than the {size} of config.json: they are of different models") from None
    ends = {f"{key}_token_id": config.get(f"{key}_token_id") for key in ("bos", "eos")}
    if bad := [key for key, value in ends.items() if not isinstance(value, int) or not 0 <= value < size]:
        raise ExportError(f"config.json gives no single usable id for {', '.join(f'tokenizer.ggml.{k}' for k in bad)}")
    stated: dict[str, Any] = {
        "model": "gpt2",
        # With this pattern, llama.cpp encodes a word that is in the vocabulary as that token, without merging. A BPE
        # trained on such words reaches the same token by its merges.
        "pre": "llama-bpe",
        "tokens": tokens,
        "token_type": types,
        "merges": merges,
        **ends,
        "add_bos_token": True,
        "add_eos_token": False,
    }
    return {f"tokenizer.ggml.{key}": field_of(value) for key, value in stated.items()}
