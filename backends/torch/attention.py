"""Attention of several query heads on one head of keys and values, without a copy of these for each query head.

Transformers repeats keys and values as often as there are query heads to one of them, as soon as a mask is given: for a
model of 8B that is four times the cache in every pass. The queries of a group can instead stand one behind the other,
as more queries of the one head (grouped-query attention: Ainslie et al., arXiv 2305.13245).
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

_NAME = "specpair_grouped"  # a name in transformers' registry, which all models of the process share


def group_queries(model: Any) -> None:
    """Have a model of transformers that uses PyTorch's attention use it this way."""
    if model.config.get_text_config()._attn_implementation == "sdpa":
        AttentionInterface.register(_NAME, _grouped)
        model.set_attn_implementation(_NAME)


def _grouped(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """`query` (rows, heads, tokens, width), `key` and `value` (rows, fewer heads, places, width), `mask` (rows, 1,
    tokens, places) -> (rows, tokens, heads, width)."""
    rows, heads, tokens, width = query.shape
    group = heads // key.shape[1]
    alone = tokens == 1 and not torch.compiler.is_compiling()  # for one token the library does it, too
    if group == 1 or alone or mask is None or options.get("position_bias") is not None:
        found: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, mask, **options)
        return found
    seen = scaled_dot_product_attention(
        query.reshape(rows, heads // group, group * tokens, width),
        key,
        value,
        attn_mask=mask.repeat(1, 1, group, 1),
        scale=options.get("scaling"),
    )
    return seen.reshape(rows, heads, tokens, -1).transpose(1, 2).contiguous(), None
