"""Grouped-query attention without repeated keys and values (Ainslie et al., arXiv 2305.13245).

With a mask, transformers repeats keys and values for each query head of a group: for an 8B model that is four times the
cache in every pass. Here the queries of a group are concatenated instead, as further queries of one head.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

_NAME = "specpair_grouped"  # a name in transformers' registry, which all models of the process share


def group_queries(model: Any) -> None:
    """Switch a transformers `model` from PyTorch's attention ("sdpa") to this one; a model of another one stays."""
    if model.config.get_text_config()._attn_implementation == "sdpa":
        AttentionInterface.register(_NAME, _grouped)
        model.set_attn_implementation(_NAME)


def _grouped(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """The attention: (slots, tokens, heads, width). `query` is (slots, heads, tokens, width), `key` and `value` are
    (slots, fewer heads, positions, width), `mask` is (slots, 1, tokens, positions)."""
    slots, heads, tokens, width = query.shape
    group = heads // key.shape[1]
    single = tokens == 1 and not torch.compiler.is_compiling()  # for one token, the library does not repeat them either
    if group == 1 or single or mask is None or options.get("position_bias") is not None:
        found: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, mask, **options)
        return found
    attended = scaled_dot_product_attention(
        query.reshape(slots, heads // group, group * tokens, width),
        key,
        value,
        attn_mask=mask.repeat(1, 1, group, 1),
        scale=options.get("scaling"),
    )
    return attended.reshape(slots, heads, tokens, -1).transpose(1, 2).contiguous(), None
