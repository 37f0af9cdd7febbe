"""Writes tiny GGUF models of random weights: recurrent and hybrid architectures, and a mixture of experts."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter

from backends.trial.reference import Floats
from backends.trial.tiny_gguf import add_vocabulary

_HIDDEN, _HEADS, _WIDTH, _FFN = 64, 2, 32, 96  # `_HEADS` heads of `_WIDTH`, one of keys and values
_IDS, _CONTEXT, _LAYERS = 264, 512, 4
_STATE, _STATE_HEADS, _GROUPS, _KERNEL = 16, 4, 2, 4  # of recurrent layers
_EXPERTS, _USED, _EXPERT_FFN = 8, 2, 32

Shapes = dict[str, tuple[int, ...]]
Metadata = dict[str, Any]


def write_tiny_architecture(name: str, path: Path) -> None:
    """Write a model of the architecture `name`, of `ARCHITECTURES`, to `path` in float32."""
    metadata, shapes = ARCHITECTURES[name]()
    writer = GGUFWriter(path, name)
    writer.add_name(path.stem)
    writer.add_block_count(_LAYERS)
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_HIDDEN)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(_IDS)
    for key, value in metadata.items():
        _add(writer, f"{name}.{key}", value)
    add_vocabulary(writer, _IDS)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    for tensor, data in _weights(shapes).items():
        writer.add_tensor(tensor, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)


def _weights(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Floats]:
    generator = np.random.default_rng(7)
    weights = {}
    for name, shape in {"token_embd.weight": (_IDS, _HIDDEN), **shapes}.items():
        if name.endswith("ssm_a"):  # how fast a state fades
            values = -generator.uniform(0.05, 1, shape)
        elif name.endswith("ssm_dt.bias"):
            values = generator.uniform(-3, 0, shape)
        elif name.endswith(("norm.weight", "ssm_d")):
            values = generator.uniform(0.5, 2, shape)
        else:
            values = generator.normal(size=shape) * shape[-1] ** -0.5
        weights[name] = np.ascontiguousarray(values, dtype=np.float32)
    return weights


def _layers(parts: Callable[[int], Shapes]) -> Shapes:
    return {f"blk.{layer}.{part}": shape for layer in range(_LAYERS) for part, shape in parts(layer).items()}


def _attends(layer: int) -> bool:
    """Whether a layer of a hybrid model attends; the others are recurrent."""
    return layer % 2 == 1


def _heads(hybrid: bool) -> Metadata:
    groups = [int(_attends(layer)) for layer in range(_LAYERS)] if hybrid else 1
    return {
        "attention.head_count": _HEADS,
        "attention.head_count_kv": groups,
        "attention.key_length": _WIDTH,
        "attention.value_length": _WIDTH,
        "rope.dimension_count": _WIDTH,
        "rope.freq_base": 10000.0,
    }


def _attention(queries: int = _HEADS) -> Shapes:
    """`queries`: heads of the query's projection, which may hold gates, too."""
    return {
        "attn_q.weight": (queries * _WIDTH, _HIDDEN),
        "attn_k.weight": (_WIDTH, _HIDDEN),
        "attn_v.weight": (_WIDTH, _HIDDEN),
        "attn_output.weight": (_HIDDEN, _HEADS * _WIDTH),
    }


_HEAD_NORMS: Shapes = {"attn_q_norm.weight": (_WIDTH,), "attn_k_norm.weight": (_WIDTH,)}


def _feed_forward() -> Shapes:
    return {
        "ffn_norm.weight": (_HIDDEN,),
        "ffn_gate.weight": (_FFN, _HIDDEN),
        "ffn_up.weight": (_FFN, _HIDDEN),
        "ffn_down.weight": (_HIDDEN, _FFN),
    }


_EXPERTS_STATED = {
    "expert_count": _EXPERTS,
    "expert_used_count": _USED,
    "expert_feed_forward_length": _EXPERT_FFN,
    "feed_forward_length": _FFN,
}


def _experts() -> Shapes:
    return {
        "ffn_gate_inp.weight": (_EXPERTS, _HIDDEN),
        "ffn_gate_exps.weight": (_EXPERTS, _EXPERT_FFN, _HIDDEN),
        "ffn_up_exps.weight": (_EXPERTS, _EXPERT_FFN, _HIDDEN),
        "ffn_down_exps.weight": (_EXPERTS, _HIDDEN, _EXPERT_FFN),
    }


def _ssm(inner: int) -> Metadata:
    return {
        "ssm.conv_kernel": _KERNEL,
        "ssm.inner_size": inner,
        "ssm.state_size": _STATE,
        "ssm.time_step_rank": _STATE_HEADS,
        "ssm.group_count": _GROUPS,
    }


def _mamba2_layer(inner: int) -> Shapes:
    channels = inner + 2 * _GROUPS * _STATE
    return {
        "ssm_in.weight": (inner + channels + _STATE_HEADS, _HIDDEN),
        "ssm_conv1d.weight": (channels, _KERNEL),
        "ssm_conv1d.bias": (channels,),
        "ssm_dt.bias": (_STATE_HEADS,),
        "ssm_a": (_STATE_HEADS, 1),
        "ssm_d": (_STATE_HEADS, 1),
        "ssm_norm.weight": (_GROUPS, inner // _GROUPS),
        "ssm_out.weight": (_HIDDEN, inner),
    }


def _mamba2() -> tuple[Metadata, Shapes]:
    inner = 2 * _HIDDEN
    shapes = _layers(lambda _: {"attn_norm.weight": (_HIDDEN,), **_mamba2_layer(inner)})
    return _ssm(inner), {"output_norm.weight": (_HIDDEN,), **shapes}


def _granite_hybrid() -> tuple[Metadata, Shapes]:
    inner = 2 * _HIDDEN

    def parts(layer: int) -> Shapes:
        mixer = _attention() if _attends(layer) else _mamba2_layer(inner)
        return {"attn_norm.weight": (_HIDDEN,), **mixer, **_feed_forward()}

    metadata = {**_heads(hybrid=True), **_ssm(inner), "feed_forward_length": _FFN, "attention.scale": _WIDTH**-0.5}
    return metadata, {"output_norm.weight": (_HIDDEN,), **_layers(parts)}


def _lfm2() -> tuple[Metadata, Shapes]:
    short = {
        "shortconv.conv.weight": (_HIDDEN, 3),
        "shortconv.in_proj.weight": (3 * _HIDDEN, _HIDDEN),
        "shortconv.out_proj.weight": (_HIDDEN, _HIDDEN),
    }

    def parts(layer: int) -> Shapes:
        mixer = {**_attention(), **_HEAD_NORMS} if _attends(layer) else short
        return {"attn_norm.weight": (_HIDDEN,), **mixer, **_feed_forward()}

    metadata = {**_heads(hybrid=True), "feed_forward_length": _FFN, "shortconv.l_cache": 3}
    return metadata, {"token_embd_norm.weight": (_HIDDEN,), **_layers(parts)}


def _delta_net() -> Shapes:
    keys, values = _GROUPS * _STATE, _STATE_HEADS * _STATE
    return {
        "attn_qkv.weight": (2 * keys + values, _HIDDEN),
        "attn_gate.weight": (values, _HIDDEN),
        "ssm_conv1d.weight": (2 * keys + values, _KERNEL),
        "ssm_dt.bias": (_STATE_HEADS,),
        "ssm_a": (_STATE_HEADS,),
        "ssm_norm.weight": (_STATE,),
        "ssm_out.weight": (_HIDDEN, values),
    }


def _gated(layer: int) -> Shapes:
    """The norms of a layer of Qwen's hybrids, and its attention with gates, if it attends."""
    norms: Shapes = {"attn_norm.weight": (_HIDDEN,), "post_attention_norm.weight": (_HIDDEN,)}
    return {**norms, **_attention(2 * _HEADS), **_HEAD_NORMS} if _attends(layer) else {**norms, **_delta_net()}


def _qwen35() -> tuple[Metadata, Shapes]:
    rates: Shapes = {"ssm_beta.weight": (_STATE_HEADS, _HIDDEN), "ssm_alpha.weight": (_STATE_HEADS, _HIDDEN)}

    def parts(layer: int) -> Shapes:
        dense = {name: shape for name, shape in _feed_forward().items() if name != "ffn_norm.weight"}
        return {**_gated(layer), **({} if _attends(layer) else rates), **dense}

    metadata = {**_heads(hybrid=False), **_ssm(_STATE_HEADS * _STATE), "feed_forward_length": _FFN}
    metadata |= {"full_attention_interval": 2, "rope.dimension_sections": [6, 5, 5, 0]}
    return metadata, {"output_norm.weight": (_HIDDEN,), **_layers(parts)}


def _qwen3next() -> tuple[Metadata, Shapes]:
    rates: Shapes = {"ssm_ba.weight": (2 * _STATE_HEADS, _HIDDEN)}
    shared: Shapes = {
        "ffn_gate_inp_shexp.weight": (_HIDDEN,),
        "ffn_gate_shexp.weight": (_EXPERT_FFN, _HIDDEN),
        "ffn_up_shexp.weight": (_EXPERT_FFN, _HIDDEN),
        "ffn_down_shexp.weight": (_HIDDEN, _EXPERT_FFN),
    }

    def parts(layer: int) -> Shapes:
        return {**_gated(layer), **({} if _attends(layer) else rates), **_experts(), **shared}

    metadata = {**_heads(hybrid=False), **_ssm(_STATE_HEADS * _STATE), **_EXPERTS_STATED, "full_attention_interval": 2}
    metadata["expert_shared_feed_forward_length"] = _EXPERT_FFN
    return metadata, {"output_norm.weight": (_HIDDEN,), **_layers(parts)}


def _qwen3moe() -> tuple[Metadata, Shapes]:
    norms: Shapes = {"attn_norm.weight": (_HIDDEN,), "ffn_norm.weight": (_HIDDEN,)}
    shapes = _layers(lambda _: {**norms, **_attention(), **_HEAD_NORMS, **_experts()})
    return {**_heads(hybrid=False), **_EXPERTS_STATED}, {"output_norm.weight": (_HIDDEN,), **shapes}


ARCHITECTURES: Mapping[str, Callable[[], tuple[Metadata, Shapes]]] = {
    "mamba2": _mamba2,  # recurrent
    "lfm2": _lfm2,  # hybrid: short convolutions
    "granitehybrid": _granite_hybrid,  # hybrid: Mamba 2
    "qwen3next": _qwen3next,  # hybrid: gated delta nets, with experts
    "qwen35": _qwen35,  # hybrid: gated delta nets, dense
    "qwen3moe": _qwen3moe,  # attention in every layer, with experts
}
