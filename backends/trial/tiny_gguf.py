"""Writes a tiny Llama as a GGUF file, for llama.cpp."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from gguf import GGUFWriter, TokenType

from backends.trial.tiny_llama import Floats, TinyModel, tiny_tokenizer

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_tiny_gguf(
    model: TinyModel, path: Path, chat_templates: Mapping[str, str] = MappingProxyType({}), tensors_a_part: int = 0
) -> None:
    """Write `model` to `path` in float32, with the vocabulary of its folder, and with chat templates by name.

    `tensors_a_part`: splits it into parts of so many tensors, `path` with -00001-of-00003 and so on; 0: one file.
    """
    config = model.config
    writer = GGUFWriter(path, "llama", split_max_tensors=tensors_a_part)
    writer.add_name(path.stem)
    add_llama(writer, config)
    if chat_templates:
        writer.add_chat_template([{"name": name, "template": each} for name, each in chat_templates.items()])
    for name, data in model.weights.items():
        writer.add_tensor(_name(name), np.ascontiguousarray(_ordered(name, data, config["head_dim"])))
    finish(writer)


def add_llama(writer: GGUFWriter, config: Mapping[str, Any]) -> None:
    """Add what llama.cpp has to know of a Llama, from its config in Hugging Face's form, and the tiny tokenizer."""
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    add_vocabulary(writer, config["vocab_size"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])


def finish(writer: GGUFWriter) -> None:
    """Write what was added to the file, and close it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer: GGUFWriter, size: int) -> None:
    """Add the tiny tokenizer, with unused ids up to `size`."""
    tokenizer = tiny_tokenizer()
    named: dict[str, int] = tokenizer["model"]["vocab"]
    control = {each["id"] for each in tokenizer["added_tokens"]}
    texts = [*named, *(f"[PAD{token}]" for token in range(len(named), size))]
    kinds = [TokenType.NORMAL] * len(named) + [TokenType.UNUSED] * (size - len(named))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(texts)
    writer.add_token_types([TokenType.CONTROL if token in control else kind for token, kind in enumerate(kinds)])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])


def _name(name: str) -> str:
    """GGUF's name of a weight."""
    name = name.removesuffix(".weight")
    _, _, within = name.partition("model.layers.")
    if not within:
        return f"{_NAMES[name]}.weight"
    layer, _, part = within.partition(".")
    return f"blk.{layer}.{_NAMES[part]}.weight"


def _ordered(name: str, weight: Floats, width: int) -> Floats:
    """The rows of q and k in GGUF's order, in which RoPE turns neighbours instead of the halves of a head."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    rows, columns = weight.shape
    return weight.reshape(rows // width, 2, width // 2, columns).swapaxes(1, 2).reshape(rows, columns)
