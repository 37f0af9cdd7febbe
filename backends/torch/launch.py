"""One launch of a model over slots at different positions: its module, masks and attention.

Grouped-query attention does without repeated keys and values (Ainslie et al., arXiv 2305.13245). With a mask,
transformers repeats keys and values for each query head of a group: for an 8B model that is four times the cache in
every pass. Here the queries of a group are concatenated instead, as further queries of one head.
"""

from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from backends.torch.cache import LaunchCache, SlotCache
from specpair.engines.errors import ModelLoadError

Numbers = NDArray[np.int64]
_NAME = "specpair_grouped"  # a name in transformers' registry, which all models of the process share
_ATTENTION = {"full_attention", "sliding_attention"}  # types of layers that take a mask
_OTHERS = {"linear_attention", "conv", "hybrid", "mlp", "moe"}  # with a state, with state and attention, with neither


class Masks:
    """Makes the masks of one model: which positions a token attends to, in each type of layer."""

    def __init__(self, config: Any, name: str, dtype: torch.dtype) -> None:
        """`config`: of the text model.
        `name`: of the model, for errors.

        Raises ModelLoadError for a layer of another type.
        """
        # "eager" attention adds the mask's numbers to the scores; other implementations take booleans.
        self._added = dtype if config._attn_implementation == "eager" else None
        self._types = set(getattr(config, "layer_types", None) or ())
        self._window = getattr(config, "sliding_window", None)
        if getattr(config, "use_sliding_window", True) is False:
            self._window = None
        if unknown := self._types - _ATTENTION - _OTHERS:
            raise ModelLoadError(
                f"{name} has layers of {', '.join(sorted(unknown))}, whose masks the torch backend does not know: "
                "choose a model of full or sliding attention, or with recurrent states"
            )

    def of(self, positions: Tensor, span: int) -> Tensor | dict[str, Tensor | None]:
        """The mask (slots, 1, tokens, span) of tokens at `positions` (slots, tokens): which of the first
        `span` positions each attends to. One mask per type of layer where these differ."""
        keys = torch.arange(span, device=positions.device)
        queries = positions[:, None, :, None]
        return self._by_type(keys <= queries, keys, queries)

    def of_trees(self, starts: Tensor, seen: Tensor, positions: Tensor, span: int) -> Tensor | dict[str, Tensor | None]:
        """The mask, as of `of`, for trees: `seen` (slots, tokens, tokens) says which tokens of the launch each attends
        to. The cache holds them in order from `starts` (slots,) on, whatever their `positions` (slots, tokens)."""
        behind = torch.arange(span, device=starts.device) - starts[:, None]  # each slot's first token of the launch
        inside = (behind >= 0) & (behind < seen.shape[1])
        at = behind.clamp(0, seen.shape[1] - 1)
        own = seen.gather(2, at[:, None, :].expand(-1, seen.shape[1], -1))
        full = torch.where(inside[:, None, :], own, (behind < 0)[:, None, :])[:, None]
        keys = torch.where(inside, positions.gather(1, at), starts[:, None] + behind)[:, None, None, :]
        return self._by_type(full, keys, positions[:, None, :, None])

    def _by_type(self, full: Tensor, keys: Tensor, queries: Tensor) -> Tensor | dict[str, Tensor | None]:
        """`full`: the mask without windows; `keys`, `queries`: their positions."""
        if self._window is None or (self._types and "sliding_attention" not in self._types):
            return self._finished(full)
        sliding = self._finished(full & (keys > queries - self._window))
        if not self._types:
            return sliding
        states = dict.fromkeys(self._types - _ATTENTION)  # None: no token is padding
        return {**states, "full_attention": self._finished(full), "sliding_attention": sliding}

    def _finished(self, mask: Tensor) -> Tensor:
        """The boolean `mask` in the form that the model's attention takes."""
        if self._added is None:
            return mask
        return torch.where(mask, 0.0, torch.finfo(self._added).min).to(self._added)


class LaunchInputs(NamedTuple):
    """The inputs of a launch, in NumPy, since PyTorch operations would run on the device, where shapes matter.

    `tokens`: int64 (slots, tokens).
    `slots`, `starts`: int64 (slots,), the slot and first position of each line.
    `kept`: indices of the tokens of each slot that get logits; 0: all tokens.
    `span`: how many positions of each slot's cache attention covers.
    `whole`: `slots` are all slots, in order.
    `seen`: which of these tokens each attends to, as in `Masks.of_trees`; None: those before it.
    """

    tokens: Numbers
    slots: Numbers
    starts: Numbers
    kept: Numbers | int
    span: int
    whole: bool
    seen: NDArray[np.bool_] | None


class LaunchModule(torch.nn.Module):  # type: ignore[misc]
    """Runs one launch: takes ids (slots, tokens), returns logits (slots, kept, vocabulary), and writes to the cache."""

    def __init__(self, model: Any, cache: SlotCache, masks: Masks, context_length: int) -> None:
        super().__init__()
        self.model, self.cache = model, cache
        self._masks, self._last, self._name = masks, context_length - 1, cache_name(model)
        self._hidden = list[Tensor]()  # of the layers' output in this launch, where the cache keeps it
        if cache.keeps_hidden:
            # What the model returns on request are the outputs of all layers, and torch.compile cannot trace that.
            model.get_decoder().register_forward_hook(lambda _, __, found: self._hidden.append(found.last_hidden_state))

    def forward(
        self,
        tokens: Tensor,
        slots: Tensor,
        starts: Tensor,
        kept: Tensor | int,
        span: int,
        whole: bool,
        seen: Tensor | None = None,
    ) -> Tensor:
        """The arguments are those of `LaunchInputs`, on the device."""
        places = starts[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        if seen is None:
            positions, mask = places, self._masks.of(places, span)
        else:
            positions = starts[:, None] + seen.sum(2) - 1
            mask = self._masks.of_trees(starts, seen, positions, span)
        known = positions.clamp(max=self._last)  # padding may lie beyond the positions that the model knows
        view = LaunchCache(self.cache, slots, places, span, whole)
        logits = logits_of(self.model, tokens, known, mask, {self._name: view}, kept)
        if self._hidden:
            view.keep_hidden(self._hidden[-1])
            self._hidden.clear()
        view.store()
        return logits


def cache_name(model: Any) -> str:
    """The name of the model's cache argument."""
    return "cache_params" if "cache_params" in signature(model.forward).parameters else "past_key_values"


def logits_of(
    model: Any, tokens: Tensor, positions: Tensor, mask: Any, cache: dict[str, Any], kept: Tensor | int = 0
) -> Tensor:
    """Run the model. Positions and mask are given: transformers would derive them from one length for all slots.

    `cache`: by its name.
    """
    logits: Tensor = model(
        input_ids=tokens,
        attention_mask=mask,
        position_ids=positions,
        use_cache=True,
        logits_to_keep=kept,
        **cache,
    ).logits
    return logits


def group_queries(model: Any) -> None:
    """Switch a transformers `model` with PyTorch's attention ("sdpa") to this one. Others stay unchanged."""
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
