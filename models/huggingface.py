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
from gguf import GGMLQuantizationType, GGUFValueType, TokenType
from numpy.typing import NDArray

from models.errors import ExportError
from models.gguf_file import Field, Gguf, Tensor
from models.safetensors_file import read_tensors
from models.training.corpus import SPLIT_PATTERN

_ELSEWHERE: Final = "convert it with convert_hf_to_gguf.py of llama.cpp"


def read_huggingface(folder: Path, *, name: str | None, license_id: str | None, description: str | None) -> Gguf:
    """Return the model of the folder with float32 tensors. Raises ExportError if it cannot be converted.

    ``tokenizer.json`` may be in the folder or, where a model pair shares it, in the folder's parent.
    """
    config = _json(folder / "config.json")
    _check(config, folder)
    tensors = list(_tensors(config, read_tensors(folder / "model.safetensors"), folder))
    beside = folder / "tokenizer.json"
    tokenizer = beside if beside.exists() else folder.resolve().parent / "tokenizer.json"
    fields = {
        "general.type": _text("model"),
        "general.name": _text(name or folder.resolve().name),
        **({"general.license": _text(license_id)} if license_id else {}),
        **({"general.description": _text(description)} if description else {}),
        **_hyperparameters(config),
        **_vocabulary(_json(tokenizer), config, tokenizer),
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


def _head_dim(config: dict[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


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


def _interleaved(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorder the rows of q or k: Hugging Face rotates the halves of a head, GGUF's llama neighbouring pairs."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _tensors(config: dict[str, Any], weights: dict[str, NDArray[np.float32]], folder: Path) -> Iterator[Tensor]:
    """The weights as tensors under GGUF's names. Raises ExportError for a missing weight or a wrong shape."""
    heads = int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    hidden, ffn, dim = int(config["hidden_size"]), int(config["intermediate_size"]), _head_dim(config)
    embeddings = (int(config["vocab_size"]), hidden)
    layer: dict[str, tuple[str, tuple[int, ...]]] = {
        "input_layernorm": ("attn_norm", (hidden,)),
        "self_attn.q_proj": ("attn_q", (heads * dim, hidden)),
        "self_attn.k_proj": ("attn_k", (kv_heads * dim, hidden)),
        "self_attn.v_proj": ("attn_v", (kv_heads * dim, hidden)),
        "self_attn.o_proj": ("attn_output", (hidden, heads * dim)),
        "post_attention_layernorm": ("ffn_norm", (hidden,)),
        "mlp.gate_proj": ("ffn_gate", (ffn, hidden)),
        "mlp.up_proj": ("ffn_up", (ffn, hidden)),
        "mlp.down_proj": ("ffn_down", (hidden, ffn)),
    }

    def take(source: str, destination: str, shape: tuple[int, ...]) -> Tensor:
        if source not in weights:
            raise ExportError(f"{folder}/model.safetensors lacks {source}, which config.json calls for")
        data = weights[source]
        if data.shape != shape:
            raise ExportError(f"{source} is {data.shape} where config.json calls for {shape}")
        return Tensor(destination, data, GGMLQuantizationType.F32)

    yield take("model.embed_tokens.weight", "token_embd.weight", embeddings)
    for index in range(int(config["num_hidden_layers"])):
        for source, (part, shape) in layer.items():
            tensor = take(f"model.layers.{index}.{source}.weight", f"blk.{index}.{part}.weight", shape)
            if part in ("attn_q", "attn_k"):
                reordered = _interleaved(tensor.data, heads if part == "attn_q" else kv_heads)
                tensor = Tensor(tensor.name, reordered, tensor.kind)
            yield tensor
    yield take("model.norm.weight", "output_norm.weight", (hidden,))
    if not config.get("tie_word_embeddings"):  # without output.weight, llama.cpp uses the embeddings
        yield take("lm_head.weight", "output.weight", embeddings)


def _text(value: str) -> Field:
    return Field(value, GGUFValueType.STRING)


def _int(value: Any) -> Field:
    return Field(int(value), GGUFValueType.UINT32)


def _float(value: Any) -> Field:
    return Field(float(value), GGUFValueType.FLOAT32)


def _list(values: list[Any], item: GGUFValueType) -> Field:
    return Field(values, GGUFValueType.ARRAY, item)


def _hyperparameters(config: dict[str, Any]) -> dict[str, Field]:
    heads, dim = config["num_attention_heads"], _head_dim(config)
    return {
        "llama.block_count": _int(config["num_hidden_layers"]),
        "llama.context_length": _int(config.get("max_position_embeddings", 2048)),
        "llama.embedding_length": _int(config["hidden_size"]),
        "llama.feed_forward_length": _int(config["intermediate_size"]),
        "llama.attention.head_count": _int(heads),
        "llama.attention.head_count_kv": _int(config.get("num_key_value_heads") or heads),
        "llama.attention.key_length": _int(dim),
        "llama.attention.value_length": _int(dim),
        "llama.attention.layer_norm_rms_epsilon": _float(config.get("rms_norm_eps", 1e-6)),
        "llama.rope.dimension_count": _int(dim),
        "llama.rope.freq_base": _float(_rope(config).get("rope_theta", 10_000.0)),
        "llama.vocab_size": _int(config["vocab_size"]),
    }


def _patterns(step: Any) -> list[str]:
    """All regular expressions in a pre-tokenizer, which can be a sequence of pre-tokenizers."""
    if not isinstance(step, dict):
        return []
    nested = [pattern for inner in step.get("pretokenizers", []) for pattern in _patterns(inner)]
    return nested + ([str(step["pattern"].get("Regex"))] if step.get("type") == "Split" else [])


def _vocabulary(tokenizer: dict[str, Any], config: dict[str, Any], path: Path) -> dict[str, Field]:
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
    ends = {f"tokenizer.ggml.{key}_token_id": config.get(f"{key}_token_id") for key in ("bos", "eos")}
    if bad := [key for key, value in ends.items() if not isinstance(value, int) or not 0 <= value < size]:
        raise ExportError(f"config.json gives no single usable id for {', '.join(bad)}")
    return {
        "tokenizer.ggml.model": _text("gpt2"),
        # With this pattern, llama.cpp encodes a word that is in the vocabulary as that token, without merging. A BPE
        # trained on such words reaches the same token by its merges.
        "tokenizer.ggml.pre": _text("llama-bpe"),
        "tokenizer.ggml.tokens": _list(tokens, GGUFValueType.STRING),
        "tokenizer.ggml.token_type": _list(types, GGUFValueType.INT32),
        "tokenizer.ggml.merges": _list(merges, GGUFValueType.STRING),
        **{key: _int(value) for key, value in ends.items()},
        "tokenizer.ggml.add_bos_token": Field(True, GGUFValueType.BOOL),
        "tokenizer.ggml.add_eos_token": Field(False, GGUFValueType.BOOL),
    }
