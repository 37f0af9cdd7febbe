"""Makes GGUF models with heads: layers in a target's own file that draft for it (MTP; "NextN" in llama.cpp).

    make_head_model("stdlib", folder / "stdlib-with-head.gguf")

Tests of heads make these models anew in each run. The weights of the tiny ones are whole numbers of a seeded generator
times one factor, so every machine makes the same bits. A tiny model's heads are noisy copies of its last layer, so the
target accepts some of their draft tokens and rejects others. Needs ``numpy`` and ``gguf`` only.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType
from numpy.typing import NDArray

from models import DEFAULT_HEAD, DEFAULT_TARGET
from models.errors import ExportError
from models.export import padded, widened
from models.gguf_file import Field, Gguf, Tensor, field_of, read_gguf, write_gguf
from models.huggingface import halves_of_heads

_Weights = dict[str, NDArray[Any]]

_WIDTH: Final = 64  # of the tiny models, as the four below
_HEADS, _KV_HEADS, _HEAD_DIM, _FFN = 4, 2, 16, 128
_PEAK: Final = 127  # weights are whole numbers from -127 to 127 times a factor
_SPREAD: Final = sqrt(((2 * _PEAK + 1) ** 2 - 1) / 12)  # their standard deviation before the factor
_SIGMOID: Final = 2  # llama.cpp's number for the gate of GLM's experts
_STRONG: Final = 1.5  # attention and MLP outweigh the embedding, so the next token depends on more than the last one


def make_head_model(kind: str, path: Path) -> None:
    """Write the model ``kind``, one of KINDS, to ``path``: a GGUF file with trunk, heads and vocabulary.

    All have the default pair's vocabulary. ``stdlib`` is the default target as glm4moe with its trained head. The
    others are tiny and named by their architecture:

    * ``glm4moe``: attention only, one head.
    * ``qwen35``: hybrid (a recurrent layer, then attention), one head.
    * ``mimo2``: a sliding window of 16 tokens, three chained heads.

    Raises ExportError for another kind and for a path that is not writable.
    """
    if kind not in KINDS:
        raise ExportError(f"unknown kind {kind!r}: choose one of {', '.join(KINDS)}")
    write_gguf(_MAKERS[kind](), path)


def make_heavy_model(path: Path, layers: int, width: int) -> None:
    """Write the default target with its head to ``path``, with ``layers`` more layers and MLPs ``width`` times as wide.

    It predicts the same tokens, and a pass takes as long as one of a larger model, while the head stays as it is.
    """
    target, head, of_head = read_gguf(DEFAULT_TARGET), read_gguf(DEFAULT_HEAD), "glm4moe.expert_feed_forward_length"
    large, last = padded(widened(target, width), layers), f"blk.{target.layers}."
    tensors = [replace(each, name=each.name.replace(last, f"blk.{large.layers}.")) for each in head.tensors]
    whole, own = with_head(large, replace(head, tensors=tensors)), with_head(target, head)
    write_gguf(replace(whole, fields={**whole.fields, of_head: own.fields[of_head]}), path)  # its layer is as before


def with_head(target: Gguf, head: Gguf) -> Gguf:
    """A Llama target as glm4moe with one more layer, the head. Its next tokens stay the target's.

    ``head``: the tensors of that layer, as ``models.training.head`` writes them. Raises ExportError for a target of
    another architecture, and for the head of a model with other sizes.
    """
    if target.architecture != "llama":
        raise ExportError(f"cannot add a head to a {target.architecture} model: only llama becomes glm4moe here")
    layers, width = target.layers, target.get("embedding_length")
    shapes = {tensor.name: tensor.data.shape for tensor in head.tensors}
    if shapes.get(f"blk.{layers}.nextn.enorm.weight") != (width,):
        raise ExportError(f"the head is not one of a model with {layers} layers of width {width}: train its own")
    fields = {re.sub(r"^llama\.", "glm4moe.", key): field for key, field in target.fields.items()}
    stated = {
        "block_count": field_of(layers + 1),
        "nextn_predict_layers": field_of(1),
        **_expert_fields(target.get("feed_forward_length") // 2, dense_layers=layers),
    }
    fields |= {f"glm4moe.{key}": field for key, field in stated.items()}
    if name := target.fields.get("general.name"):
        fields["general.name"] = replace(name, value=f"{name.value} with head")
    dim = target.get("attention.key_length")
    return Gguf("glm4moe", fields, [*(_as_glm4moe(tensor, dim) for tensor in target.tensors), *head.tensors])


def _as_glm4moe(tensor: Tensor, dim: int) -> Tensor:
    """The tensor of a Llama model, for the same result in glm4moe. ``dim``: of an attention head."""
    if tensor.name.endswith((".attn_q.weight", ".attn_k.weight")):
        return replace(tensor, data=halves_of_heads(tensor.data, dim))
    return replace(tensor, name=tensor.name.replace(".ffn_norm.", ".post_attention_norm."))


def _stdlib() -> Gguf:
    return with_head(read_gguf(DEFAULT_TARGET), read_gguf(DEFAULT_HEAD))


def _glm4moe() -> Gguf:
    generator = np.random.default_rng(1)
    layer = _normed({**_attention(generator), **experts(_mlp(generator))}, "attn_norm", "post_attention_norm")
    weights = {**_ends(generator), **_block(0, layer), **_block(1, {**layer, **_next(generator, noise=0.15)})}
    return _model("glm4moe", weights, layers=2, heads=1, more=_expert_fields(_FFN // 2, dense_layers=0))


def _mimo2() -> Gguf:
    generator, heads = np.random.default_rng(7), 3
    attention = _attention(generator)
    joined = np.concatenate([attention.pop(f"attn_{part}.weight") for part in "qkv"])
    layer = _normed({**attention, "attn_qkv.weight": joined, **_mlp(generator)}, "attn_norm", "ffn_norm")
    weights = {**_ends(generator), **_block(0, layer)}
    for index in range(1, 1 + heads):
        weights |= _block(index, {**layer, **_next(generator, noise=0.15)})
    more = {
        "expert_feed_forward_length": field_of(_FFN),
        "attention.sliding_window": field_of(16),
        "attention.sliding_window_pattern": Field([True] * (1 + heads), GGUFValueType.ARRAY, GGUFValueType.BOOL),
    }
    return _model("mimo2", weights, layers=1 + heads, heads=heads, more=more)


def _qwen35() -> Gguf:
    generator = np.random.default_rng(5)
    state, keys, values, kernel = 16, 2, 4, 4  # of the recurrent layer: a state's width, heads, convolution
    joined, inner = state * (2 * keys + values), state * values
    recurrent = {
        "attn_qkv.weight": _random(generator, joined, _WIDTH),
        "attn_gate.weight": _random(generator, inner, _WIDTH),
        "ssm_conv1d.weight": _random(generator, joined, kernel),
        "ssm_dt.bias": _random(generator, values, deviation=1.0),
        "ssm_a": np.linspace(-0.1, -0.7, values, dtype=np.float32),  # decay, from slow to fast
        "ssm_beta.weight": _random(generator, values, _WIDTH),
        "ssm_alpha.weight": _random(generator, values, _WIDTH),
        "ssm_norm.weight": np.ones(state, np.float32),
        "ssm_out.weight": _random(generator, _WIDTH, inner) * np.float32(0.2),
        **{name: matrix * np.float32(0.2) for name, matrix in _mlp(generator).items()},
    }
    attention = {
        **_attention(generator, query=2),  # each query comes with a gate
        "attn_q_norm.weight": np.ones(_HEAD_DIM, np.float32),
        "attn_k_norm.weight": np.ones(_HEAD_DIM, np.float32),
        **_mlp(generator),
    }
    norms = ("attn_norm", "post_attention_norm")
    layer, head = _normed(attention, *norms), _next(generator, noise=0.1)
    weights = {**_ends(generator), **_block(0, _normed(recurrent, *norms)), **_block(1, layer)}
    weights |= _block(2, {**layer, **head})
    more = {
        "full_attention_interval": field_of(2),
        "rope.dimension_sections": field_of([4, 2, 2, 0]),
        "ssm.conv_kernel": field_of(kernel),
        "ssm.inner_size": field_of(inner),
        "ssm.state_size": field_of(state),
        "ssm.time_step_rank": field_of(values),
        "ssm.group_count": field_of(keys),
    }
    return _model("qwen35", weights, layers=3, heads=1, more=more)


def _expert_fields(expert_width: int, dense_layers: int) -> dict[str, Field]:
    """What glm4moe states beyond other architectures, without the architecture's name.

    After ``dense_layers`` layers with a plain MLP come layers with the two experts of ``expert_width`` neurons each.
    """
    stated = {
        "expert_count": 1,
        "expert_used_count": 1,
        "expert_shared_count": 1,
        "expert_feed_forward_length": expert_width,
        "leading_dense_block_count": dense_layers,
        "expert_weights_norm": True,  # the sole expert's weight is 1
        "expert_weights_scale": 1.0,
        "expert_gating_func": _SIGMOID,
    }
    return {key: field_of(value) for key, value in stated.items()}


def experts(mlp: Mapping[str, NDArray[Any]]) -> _Weights:
    """An MLP (``ffn_gate``, ``ffn_up``, ``ffn_down``) as the experts of a glm4moe layer.

    Half of the neurons form the sole expert, the others the shared expert. Both always run and their outputs are added,
    so they compute what the MLP computes.
    """
    parts: _Weights = {  # a sole expert is chosen whatever its gate says
        "ffn_gate_inp.weight": np.zeros((1, mlp["ffn_gate.weight"].shape[1]), np.float32),
        "exp_probs_b.bias": np.zeros(1, np.float32),
    }
    for name, matrix in mlp.items():
        part = name.removesuffix(".weight")
        expert, shared = np.split(matrix, 2, axis=1 if part == "ffn_down" else 0)  # along the neurons
        parts |= {f"{part}_exps.weight": expert[None], f"{part}_shexp.weight": shared}
    return parts


def _random(generator: np.random.Generator, *shape: int, deviation: float | None = None) -> NDArray[np.float32]:
    """Numbers of mean 0. The deviation is 1 over the root of the last size by default: a product keeps the scale."""
    factor = (shape[-1] ** -0.5 if deviation is None else deviation) / _SPREAD
    return generator.integers(-_PEAK, _PEAK + 1, shape).astype(np.float32) * np.float32(factor)


def _attention(generator: np.random.Generator, query: int = 1) -> _Weights:
    """The four matrices of an attention layer. ``query``: outputs for each number of the queries."""
    rows = {"q": query * _HEADS * _HEAD_DIM, "k": _KV_HEADS * _HEAD_DIM, "v": _KV_HEADS * _HEAD_DIM, "output": _WIDTH}
    return {
        f"attn_{part}.weight": _random(generator, count, _WIDTH) * np.float32(_STRONG) for part, count in rows.items()
    }


def _mlp(generator: np.random.Generator) -> _Weights:
    shapes = {"gate": (_FFN, _WIDTH), "up": (_FFN, _WIDTH), "down": (_WIDTH, _FFN)}
    return {f"ffn_{part}.weight": _random(generator, *shape) * np.float32(_STRONG) for part, shape in shapes.items()}


def _normed(layer: _Weights, *norms: str) -> _Weights:
    return layer | {f"{norm}.weight": np.ones(_WIDTH, np.float32) for norm in norms}


def _next(generator: np.random.Generator, noise: float) -> _Weights:
    """What makes a copied layer a head: its input is the token's embedding and ``noise`` of the hidden state."""
    hidden = _random(generator, _WIDTH, _WIDTH) * np.float32(noise)
    return {
        "nextn.eh_proj.weight": np.concatenate([np.eye(_WIDTH, dtype=np.float32), hidden], axis=1),
        "nextn.enorm.weight": np.ones(_WIDTH, np.float32),
        "nextn.hnorm.weight": np.ones(_WIDTH, np.float32),
    }


def _ends(generator: np.random.Generator) -> _Weights:
    """Embeddings, LM head and the norm before it. Entries of -1 and 1 stay as they are in a head's norm."""
    vocabulary = len(_vocabulary()["tokenizer.ggml.tokens"].value)
    return {
        "token_embd.weight": generator.integers(0, 2, (vocabulary, _WIDTH)).astype(np.float32) * 2 - 1,
        "output_norm.weight": np.ones(_WIDTH, np.float32),
        "output.weight": _random(generator, vocabulary, _WIDTH, deviation=1.0),
    }


def _block(index: int, layer: _Weights) -> _Weights:
    return {f"blk.{index}.{name}": data for name, data in layer.items()}


def _vocabulary() -> dict[str, Field]:
    return {key: field for key, field in read_gguf(DEFAULT_TARGET).fields.items() if key.startswith("tokenizer.")}


def _model(architecture: str, weights: _Weights, *, layers: int, heads: int, more: Mapping[str, Field]) -> Gguf:
    """A tiny model. ``layers``: with those of the heads. ``more``: what only its architecture states."""
    stated = {
        "block_count": layers,
        "nextn_predict_layers": heads,
        "context_length": 2048,
        "embedding_length": _WIDTH,
        "feed_forward_length": _FFN,
        "attention.head_count": _HEADS,
        "attention.head_count_kv": _KV_HEADS,
        "attention.key_length": _HEAD_DIM,
        "attention.value_length": _HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": _HEAD_DIM,
        "rope.freq_base": 10_000.0,
    }
    fields = {key: field_of(value) for key, value in stated.items()} | dict(more)
    named = {f"{architecture}.{key}": field for key, field in fields.items()}
    tensors = [Tensor(name, data, GGMLQuantizationType.F32) for name, data in weights.items()]
    general = {"general.name": field_of(f"tiny {architecture} with {heads} head{'s' * (heads > 1)}")}
    return Gguf(architecture, general | named | _vocabulary(), tensors)


_MAKERS: Final[dict[str, Callable[[], Gguf]]] = {
    "stdlib": _stdlib,
    "glm4moe": _glm4moe,
    "qwen35": _qwen35,
    "mimo2": _mimo2,
}
KINDS: Final = tuple(_MAKERS)


def make_head_file(kind: str, path: Path) -> None:
    """Write ``kind``, one of FILE_KINDS, to ``path``: a head in a GGUF file of its own, or the target of these heads.

    All are tiny, and have the default pair's vocabulary:

    * ``llama``: the target. Attention only, three layers.
    * ``eagle3``: an EAGLE-3 head that drafts well. It takes embeddings and LM head from the target.
    * ``dflash``: a DFlash head of random weights, for blocks of seven draft tokens. It takes the same.

    Raises ExportError for another kind and for a path that is not writable.
    """
    if kind not in FILE_KINDS:
        raise ExportError(f"unknown kind {kind!r}: choose one of {', '.join(FILE_KINDS)}")
    write_gguf(_FILE_MAKERS[kind](), path)


def _llama() -> Gguf:
    generator = np.random.default_rng(3)
    weights = _ends(generator)
    for index, strength in enumerate((0.2, 0.2, 1.0)):  # the last layer decides, as the head is a copy of it
        attention = {name: matrix * np.float32(0.25) for name, matrix in _attention(generator).items()}
        layer = {name: matrix * np.float32(strength) for name, matrix in {**attention, **_mlp(generator)}.items()}
        weights |= _block(index, _normed(layer, "attn_norm", "ffn_norm"))
    return _model("llama", weights, layers=3, heads=0, more={})


def _eagle3() -> Gguf:
    """The target's last MLP behind an attention by which each token sees itself: it needs the token's embedding."""
    target = {tensor.name: tensor.data for tensor in _llama().tensors}
    generator = np.random.default_rng(13)
    identity = np.eye(_WIDTH, dtype=np.float32)

    def beside(scale: float, noise: float) -> NDArray[np.float32]:
        hidden = _random(generator, _WIDTH, _WIDTH) * np.float32(noise)
        return np.concatenate([identity * np.float32(scale), hidden], axis=1)

    layer = {name: target[f"blk.2.{name}"] for name in (f"ffn_{part}.weight" for part in ("gate", "up", "down"))}
    layer |= {f"attn_{part}.weight": beside(scale, 0.1) for part, scale in (("q", 1.5), ("k", 1.5), ("v", 1.0))}
    layer |= {"attn_output.weight": identity}
    weights = {
        "output_norm.weight": np.ones(_WIDTH, np.float32),
        "fc.weight": _random(generator, _WIDTH, 3 * _WIDTH) * np.float32(0.2),
        **_block(0, _normed(layer, "attn_norm", "attn_norm_2", "ffn_norm")),
    }
    more = {
        "attention.head_count_kv": field_of(_HEADS),
        "target_layers": field_of([0, 1, 2]),
        "target_hidden_size": field_of(_WIDTH),
    }
    return _model("eagle3", weights, layers=1, heads=0, more=more)


def _dflash() -> Gguf:
    generator = np.random.default_rng(17)
    weights = {
        "output_norm.weight": np.ones(_WIDTH, np.float32),
        "fc.weight": _random(generator, _WIDTH, 2 * _WIDTH),
        "enc.output_norm.weight": np.ones(_WIDTH, np.float32),
    }
    for index in range(2):
        layer = _normed({**_attention(generator), **_mlp(generator)}, "attn_norm", "ffn_norm")
        layer |= {f"attn_{part}_norm.weight": np.ones(_HEAD_DIM, np.float32) for part in "qk"}
        weights |= _block(index, layer)
    more = {"target_layers": field_of([1, 2]), "block_size": field_of(8)}
    model = _model("dflash", weights, layers=2, heads=0, more=more)
    return Gguf(model.architecture, {**model.fields, "tokenizer.ggml.mask_token_id": field_of(2)}, model.tensors)


_FILE_MAKERS: Final[dict[str, Callable[[], Gguf]]] = {"llama": _llama, "eagle3": _eagle3, "dflash": _dflash}
FILE_KINDS: Final = tuple(_FILE_MAKERS)
