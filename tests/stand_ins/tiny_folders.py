"""Tiny models of random weights in folders of Hugging Face layout: of all kinds. Needs torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.trial.tiny_llama import tiny_tokenizer
from models.gguf_file import read_gguf

_HIDDEN = 64
_SIZES = {
    "vocab_size": 264,
    "hidden_size": _HIDDEN,
    "num_hidden_layers": 4,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
_ATTENTION = {"intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
_DELTA = {  # a gated delta net in three of four layers
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_SHARED_EXPERT = {"shared_expert_intermediate_size": 32}
_MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_chunk_size": 16}
_CONV = {"layer_types": ["conv", "conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False}
FAMILIES: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 4, "head_dim": 32, "state_size": 16, "n_groups": 2, "chunk_size": 16},
    "lfm2": {**_ATTENTION, **_CONV},
    "granitemoehybrid": {
        **_ATTENTION,
        **_MAMBA,
        "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 48,
    },
    "qwen3_next": {**_ATTENTION, **_DELTA, **_EXPERTS, **_SHARED_EXPERT},
    "qwen3_5_text": {**_ATTENTION, **_DELTA},
    "falcon_h1": {**_ATTENTION, **_MAMBA, "mamba_d_ssm": 128},
    "lfm2_moe": {**_ATTENTION, **_EXPERTS, "layer_types": _CONV["layer_types"], "num_dense_layers": 1},
    "nemotron_h": {
        **_ATTENTION,
        "layers_block_type": ["linear_attention", "mlp", "full_attention", "moe"],
        "mamba_num_heads": 4,
        "mamba_head_dim": 32,
        "ssm_state_size": 16,
        "n_groups": 2,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 32,
    },
    "bamba": {**_ATTENTION, **_MAMBA, "attn_layer_indices": [2]},
    "olmo_hybrid": {**_ATTENTION, **_DELTA},
    "qwen3_moe": {**_ATTENTION, **_EXPERTS},
    "gemma3_text": {**_ATTENTION, "sliding_window": 32, "layer_types": [*["sliding_attention"] * 3, "full_attention"]},
}
_ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_nextn_predict_layers": 1}
_LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
_NEXTN = {"embedding": "enorm", "hidden": "hnorm", "projection": "eh_proj", "norm": "shared_head.norm"}
_MTP = {"embedding": "pre_fc_norm_embedding", "hidden": "pre_fc_norm_hidden", "projection": "fc", "norm": "norm"}
# Families with an MTP head: their configuration, what names of the head's tensors begin with, and those of its layer,
# and its names of the tensors. transformers finds the heads of some by the number of the layer.
WITH_HEAD: dict[str, tuple[dict[str, Any], str, str, dict[str, str]]] = {
    "glm4_moe": (
        {**_ATTENTION, **_ROUTED, "num_hidden_layers": 46, "first_k_dense_replace": 45},
        "model.layers.46.",
        "model.layers.46.",
        _NEXTN,
    ),
    "deepseek_v3": (
        {"intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 4, "n_shared_experts": 1}
        | {**_ROUTED, **_LATENT, "n_group": 1, "topk_group": 1, "num_hidden_layers": 61, "first_k_dense_replace": 60},
        "model.layers.61.",
        "model.layers.61.",
        _NEXTN,
    ),
    "mellum": (
        {**_ATTENTION, **_EXPERTS, "num_hidden_layers": 2, "num_nextn_predict_layers": 1, "sliding_window": 16}
        | {"layer_types": ["sliding_attention", "full_attention"]},
        "mtp.",
        "mtp.layers.0.",
        _MTP,
    ),
}


def write_tiny_folder(family: str, folder: Path, changes: Mapping[str, Any] | None = None) -> None:
    """Write a model of transformers' `family`, whose logits have a spread of about 5.

    `changes`: of its configuration; None: those of `FAMILIES`.
    """
    import torch
    import transformers

    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(
        family, **{**_SIZES, **(FAMILIES[family] if changes is None else changes)}
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=2.0 * weight.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tiny_tokenizer()))


def write_folder_with_head(family: str, folder: Path, *, right: bool = False) -> None:
    """Write a model of a `family` in WITH_HEAD, whose MTP head is its last layer with random inputs.

    `right`: make the head draft what the model picks. No layer adds anything then, so the next token depends on the
        last one alone, and the head passes on that one's embedding.
    """
    import torch
    from safetensors.torch import load_file, save_file

    changes, begin, layer, names = WITH_HEAD[family]
    write_tiny_folder(family, folder, changes)
    file, size = folder / "model.safetensors", _HIDDEN
    weights = load_file(file)
    last = f"model.layers.{changes['num_hidden_layers'] - 1}."
    weights |= {name.replace(last, layer): each.clone() for name, each in weights.items() if name.startswith(last)}
    weights |= {f"{begin}{names[norm]}.weight": torch.ones(size) for norm in ("embedding", "hidden", "norm")}
    passed_on = torch.cat([torch.eye(size), torch.zeros(size, size)], dim=1)
    weights[f"{begin}{names['projection']}.weight"] = passed_on if right else torch.randn(size, 2 * size) / size**0.5
    for name, each in weights.items():
        if right and name.endswith(("o_proj.weight", "down_proj.weight")):
            each.zero_()
    save_file(weights, file, metadata={"format": "pt"})


def tokenizer_of(path: Path) -> dict[str, Any]:
    """The tokenizer in a GGUF file, in the layout of tokenizer.json."""
    fields = read_gguf(path).fields
    tokens, types, merges = (fields[f"tokenizer.ggml.{key}"].value for key in ("tokens", "token_type", "merges"))
    content = tiny_tokenizer()
    plain = content["added_tokens"][0]
    content["added_tokens"] = [{**plain, "id": at, "content": tokens[at]} for at, kind in enumerate(types) if kind == 3]
    ids = {token: at for at, token in enumerate(tokens)}
    content["model"] |= {"vocab": ids, "merges": [merge.split(" ") for merge in merges]}
    return content
