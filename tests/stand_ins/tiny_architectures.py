"""Writes GGUF models of random weights, tiny unless told otherwise: all kinds of architectures that llama.cpp runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType

from backends.trial.tiny_llama import Floats, tiny_tokenizer
from models.gguf_file import Field, Gguf, Tensor, field_of, read_gguf, write_gguf
from models.huggingface import vocabulary_fields

_IDS = 264
_STATE, _STATE_HEADS, _GROUPS, _KERNEL = 16, 4, 2, 4  # of recurrent layers
_WINDOW = 32  # tokens that a layer with a sliding window attends to
_MIXED = "attn_output.weight", "ssm_out.weight", "out_proj.weight"  # what attention and recurrent layers end with


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a model is. Those that have neither experts nor recurrent layers ignore what is said of these."""

    hidden: int = 64
    layers: int = 4
    heads: int = 2  # of queries, `width` each; of keys and values there is one
    width: int = 32
    ffn: int = 96  # of a layer without experts
    experts: int = 8
    used: int = 2  # experts that a token uses
    expert_ffn: int = 32
    context: int = 512


Shapes = dict[str, tuple[int, ...]]
Metadata = dict[str, Any]


def write_tiny_architecture(name: str, path: Path, sizes: Sizes = Sizes(), *, mixing: float = 1.0) -> None:
    """Write a model of the architecture `name`, of `ARCHITECTURES`, to `path` in float32.

    `mixing`: factor of all that a token takes from those before it. If it is small, a text at temperature 0 soon
        repeats, since the last token decides which one is next.
    """
    metadata, shapes = ARCHITECTURES[name](sizes)
    stated = {
        "block_count": sizes.layers,
        "context_length": sizes.context,
        "embedding_length": sizes.hidden,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "vocab_size": _IDS,
        **metadata,
    }
    fields = {"general.name": field_of(path.stem)} | {f"{name}.{key}": field_of(each) for key, each in stated.items()}
    fields |= vocabulary_fields(tiny_tokenizer(), {"vocab_size": _IDS, "bos_token_id": 0, "eos_token_id": 1}, path)
    weights = _weights({"token_embd.weight": (_IDS, sizes.hidden), **shapes}, mixing)
    tensors = [Tensor(tensor, data, GGMLQuantizationType.F32) for tensor, data in weights.items()]
    write_gguf(Gguf(name, fields, tensors), path)


def split_gguf(path: Path, tensors_a_part: int) -> list[Path]:
    """Split a file into parts of so many tensors, beside it, the first with all metadata. Returns their paths."""
    model, kind = read_gguf(path), GGUFValueType.UINT16
    parts = [model.tensors[at : at + tensors_a_part] for at in range(0, len(model.tensors), tensors_a_part)]
    paths = [path.with_name(f"{path.stem}-{at:05}-of-{len(parts):05}.gguf") for at in range(1, len(parts) + 1)]
    for number, (part, tensors) in enumerate(zip(paths, parts, strict=True)):
        fields = {"split.no": Field(number, kind), "split.count": Field(len(parts), kind)}
        write_gguf(Gguf(model.architecture, fields if number else {**model.fields, **fields}, tensors), part)
    return paths


def _weights(shapes: Mapping[str, tuple[int, ...]], mixing: float) -> dict[str, Floats]:
    generator = np.random.default_rng(7)
    weights = {}
    for name, shape in shapes.items():
        if name.endswith("ssm_a"):  # how fast a state fades
            values = -generator.uniform(0.05, 1, shape)
        elif name.endswith("ssm_dt.bias"):
            values = generator.uniform(-3, 0, shape)
        elif name.endswith(("norm.weight", "ssm_d")):
            values = generator.uniform(0.5, 2, shape)
        else:
            values = generator.normal(size=shape) * shape[-1] ** -0.5
        if name.endswith(_MIXED):
            values *= mixing
        weights[name] = np.ascontiguousarray(values, dtype=np.float32)
    return weights


def _layers(of: Sizes, parts: Callable[[int], Shapes]) -> Shapes:
    return {f"blk.{layer}.{part}": shape for layer in range(of.layers) for part, shape in parts(layer).items()}


def _attends(layer: int) -> bool:
    """Whether a layer of a hybrid model attends; the others are recurrent."""
    return layer % 2 == 1


def _heads(of: Sizes, hybrid: bool) -> Metadata:
    groups = [int(_attends(layer)) for layer in range(of.layers)] if hybrid else 1
    return {
        "attention.head_count": of.heads,
        "attention.head_count_kv": groups,
        "attention.key_length": of.width,
        "attention.value_length": of.width,
        "rope.dimension_count": of.width,
        "rope.freq_base": 10000.0,
    }


def _attention(of: Sizes, gates: int = 0) -> Shapes:
    """`gates`: further heads of the query's projection."""
    return {
        "attn_q.weight": ((of.heads + gates) * of.width, of.hidden),
        "attn_k.weight": (of.width, of.hidden),
        "attn_v.weight": (of.width, of.hidden),
        "attn_output.weight": (of.hidden, of.heads * of.width),
    }


def _head_norms(of: Sizes) -> Shapes:
    return {"attn_q_norm.weight": (of.width,), "attn_k_norm.weight": (of.width,)}


def _attended(of: Sizes) -> Shapes:
    return {**_attention(of), **_head_norms(of)}


def _feed_forward(of: Sizes) -> Shapes:
    return {
        "ffn_norm.weight": (of.hidden,),
        "ffn_gate.weight": (of.ffn, of.hidden),
        "ffn_up.weight": (of.ffn, of.hidden),
        "ffn_down.weight": (of.hidden, of.ffn),
    }


def _experts_stated(of: Sizes) -> Metadata:
    return {
        "expert_count": of.experts,
        "expert_used_count": of.used,
        "expert_feed_forward_length": of.expert_ffn,
        "feed_forward_length": of.ffn,
    }


def _experts(of: Sizes) -> Shapes:
    return {
        "ffn_gate_inp.weight": (of.experts, of.hidden),
        "ffn_gate_exps.weight": (of.experts, of.expert_ffn, of.hidden),
        "ffn_up_exps.weight": (of.experts, of.expert_ffn, of.hidden),
        "ffn_down_exps.weight": (of.experts, of.hidden, of.expert_ffn),
    }


def _ssm(inner: int) -> Metadata:
    return {
        "ssm.conv_kernel": _KERNEL,
        "ssm.inner_size": inner,
        "ssm.state_size": _STATE,
        "ssm.time_step_rank": _STATE_HEADS,
        "ssm.group_count": _GROUPS,
    }


def _mamba2_layer(of: Sizes, inner: int) -> Shapes:
    channels = inner + 2 * _GROUPS * _STATE
    return {
        "ssm_in.weight": (inner + channels + _STATE_HEADS, of.hidden),
        "ssm_conv1d.weight": (channels, _KERNEL),
        "ssm_conv1d.bias": (channels,),
        "ssm_dt.bias": (_STATE_HEADS,),
        "ssm_a": (_STATE_HEADS, 1),
        "ssm_d": (_STATE_HEADS, 1),
        "ssm_norm.weight": (_GROUPS, inner // _GROUPS),
        "ssm_out.weight": (of.hidden, inner),
    }


def _mamba2(of: Sizes) -> tuple[Metadata, Shapes]:
    inner = 2 * of.hidden
    shapes = _layers(of, lambda _: {"attn_norm.weight": (of.hidden,), **_mamba2_layer(of, inner)})
    return _ssm(inner), {"output_norm.weight": (of.hidden,), **shapes}


def _granite_hybrid(of: Sizes) -> tuple[Metadata, Shapes]:
    inner = 2 * of.hidden

    def parts(layer: int) -> Shapes:
        mixer = _attention(of) if _attends(layer) else _mamba2_layer(of, inner)
        return {"attn_norm.weight": (of.hidden,), **mixer, **_feed_forward(of)}

    metadata = {**_heads(of, hybrid=True), **_ssm(inner), "feed_forward_length": of.ffn}
    metadata["attention.scale"] = of.width**-0.5
    return metadata, {"output_norm.weight": (of.hidden,), **_layers(of, parts)}


def _lfm2(of: Sizes) -> tuple[Metadata, Shapes]:
    short = {
        "shortconv.conv.weight": (of.hidden, 3),
        "shortconv.in_proj.weight": (3 * of.hidden, of.hidden),
        "shortconv.out_proj.weight": (of.hidden, of.hidden),
    }

    def parts(layer: int) -> Shapes:
        mixer = _attended(of) if _attends(layer) else short
        return {"attn_norm.weight": (of.hidden,), **mixer, **_feed_forward(of)}

    metadata = {**_heads(of, hybrid=True), "feed_forward_length": of.ffn, "shortconv.l_cache": 3}
    return metadata, {"token_embd_norm.weight": (of.hidden,), **_layers(of, parts)}


def _delta_net(of: Sizes) -> Shapes:
    keys, values = _GROUPS * _STATE, _STATE_HEADS * _STATE
    return {
        "attn_qkv.weight": (2 * keys + values, of.hidden),
        "attn_gate.weight": (values, of.hidden),
        "ssm_conv1d.weight": (2 * keys + values, _KERNEL),
        "ssm_dt.bias": (_STATE_HEADS,),
        "ssm_a": (_STATE_HEADS,),
        "ssm_norm.weight": (_STATE,),
        "ssm_out.weight": (of.hidden, values),
    }


def _gated(of: Sizes, layer: int) -> Shapes:
    """The norms of a layer of Qwen's hybrids, and its attention with gates, if it attends."""
    norms: Shapes = {"attn_norm.weight": (of.hidden,), "post_attention_norm.weight": (of.hidden,)}
    return norms | ({**_attention(of, of.heads), **_head_norms(of)} if _attends(layer) else _delta_net(of))


def _qwen35(of: Sizes) -> tuple[Metadata, Shapes]:
    rates: Shapes = {"ssm_beta.weight": (_STATE_HEADS, of.hidden), "ssm_alpha.weight": (_STATE_HEADS, of.hidden)}

    def parts(layer: int) -> Shapes:
        dense = {name: shape for name, shape in _feed_forward(of).items() if name != "ffn_norm.weight"}
        return {**_gated(of, layer), **({} if _attends(layer) else rates), **dense}

    metadata = {**_heads(of, hybrid=False), **_ssm(_STATE_HEADS * _STATE), "feed_forward_length": of.ffn}
    metadata |= {"full_attention_interval": 2, "rope.dimension_sections": [6, 5, 5, 0]}
    return metadata, {"output_norm.weight": (of.hidden,), **_layers(of, parts)}


def _qwen3next(of: Sizes) -> tuple[Metadata, Shapes]:
    rates: Shapes = {"ssm_ba.weight": (2 * _STATE_HEADS, of.hidden)}
    shared: Shapes = {
        "ffn_gate_inp_shexp.weight": (of.hidden,),
        "ffn_gate_shexp.weight": (of.expert_ffn, of.hidden),
        "ffn_up_shexp.weight": (of.expert_ffn, of.hidden),
        "ffn_down_shexp.weight": (of.hidden, of.expert_ffn),
    }

    def parts(layer: int) -> Shapes:
        return {**_gated(of, layer), **({} if _attends(layer) else rates), **_experts(of), **shared}

    metadata = {**_heads(of, hybrid=False), **_ssm(_STATE_HEADS * _STATE), **_experts_stated(of)}
    metadata["full_attention_interval"] = 2
    metadata["expert_shared_feed_forward_length"] = of.expert_ffn
    return metadata, {"output_norm.weight": (of.hidden,), **_layers(of, parts)}


def _qwen3(of: Sizes) -> tuple[Metadata, Shapes]:
    shapes = _layers(of, lambda _: {"attn_norm.weight": (of.hidden,), **_attended(of), **_feed_forward(of)})
    metadata = {**_heads(of, hybrid=False), "feed_forward_length": of.ffn}
    return metadata, {"output_norm.weight": (of.hidden,), **shapes}


def _gemma3(of: Sizes) -> tuple[Metadata, Shapes]:
    norms = {f"{name}.weight": (of.hidden,) for name in ("attn_norm", "post_attention_norm", "post_ffw_norm")}
    shapes = _layers(of, lambda _: {**norms, **_attended(of), **_feed_forward(of)})
    metadata = {**_heads(of, hybrid=False), "feed_forward_length": of.ffn, "attention.sliding_window": _WINDOW}
    return metadata, {"output_norm.weight": (of.hidden,), **shapes}


def _qwen3moe(of: Sizes) -> tuple[Metadata, Shapes]:
    norms: Shapes = {"attn_norm.weight": (of.hidden,), "ffn_norm.weight": (of.hidden,)}
    shapes = _layers(of, lambda _: {**norms, **_attended(of), **_experts(of)})
    return {**_heads(of, hybrid=False), **_experts_stated(of)}, {"output_norm.weight": (of.hidden,), **shapes}


ARCHITECTURES: Mapping[str, Callable[[Sizes], tuple[Metadata, Shapes]]] = {
    "qwen3": _qwen3,  # dense: attention in every layer
    "gemma3": _gemma3,  # attention with a window, but in each sixth layer
    "qwen3moe": _qwen3moe,  # attention in every layer, with experts
    "mamba2": _mamba2,  # recurrent
    "lfm2": _lfm2,  # hybrid: short convolutions
    "granitehybrid": _granite_hybrid,  # hybrid: Mamba 2
    "qwen3next": _qwen3next,  # hybrid: gated delta nets, with experts
    "qwen35": _qwen35,  # hybrid: gated delta nets, dense
}
RECURRENT = "mamba2", "lfm2", "granitehybrid", "qwen3next", "qwen35"  # of these, those with recurrent layers
