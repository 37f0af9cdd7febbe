"""One launch of a model over slots, each at a position of its own: the module that runs it, and its attention masks."""

from typing import Any

import torch
from torch import Tensor

from backends.torch.cache import SlotCache, View
from specpair.engines.errors import ModelLoadError

_ATTENTION = {"full_attention", "sliding_attention"}  # the types of layers that can roll back


class Masks:
    """Makes the masks of one model: which positions a token attends to, in each type of layer."""

    def __init__(self, config: Any, name: str, dtype: torch.dtype) -> None:
        """`config`: of the text model.
        `name`: of the model, for errors.

        Raises ModelLoadError for a layer without attention.
        """
        # "eager" attention adds the mask's numbers to the scores; other implementations take booleans.
        self._added = dtype if config._attn_implementation == "eager" else None
        self._types = set(getattr(config, "layer_types", None) or ())
        self._window = getattr(config, "sliding_window", None)
        if getattr(config, "use_sliding_window", True) is False:
            self._window = None
        if not self._types <= _ATTENTION:
            others = ", ".join(sorted(self._types - _ATTENTION))
            raise ModelLoadError(
                f"{name} has layers of {others}, which cannot roll back rejected tokens: "
                "choose a model with attention in every layer"
            )

    def of(self, positions: Tensor, span: int) -> Tensor | dict[str, Tensor]:
        """The mask (slots, 1, tokens, span) of tokens at `positions` (slots, tokens): which of the first
        `span` positions each attends to. One mask per type of layer where these differ."""
        keys = torch.arange(span, device=positions.device)
        queries = positions[:, None, :, None]
        full = keys <= queries
        if self._window is None or self._types == {"full_attention"}:
            return self._finished(full)
        sliding = self._finished(full & (keys > queries - self._window))
        return {"full_attention": self._finished(full), "sliding_attention": sliding} if self._types else sliding

    def _finished(self, mask: Tensor) -> Tensor:
        """The boolean `mask` in the form that the model's attention takes."""
        if self._added is None:
            return mask
        return torch.where(mask, 0.0, torch.finfo(self._added).min).to(self._added)


class LaunchModule(torch.nn.Module):  # type: ignore[misc]
    """Runs one launch: takes ids (slots, tokens), returns logits (slots, kept, vocabulary), and writes to the cache."""

    def __init__(self, model: Any, cache: SlotCache, masks: Masks, context_length: int) -> None:
        super().__init__()
        self.model, self.cache = model, cache
        self._masks, self._last = masks, context_length - 1

    def forward(
        self, tokens: Tensor, slots: Tensor, starts: Tensor, kept: Tensor | int, span: int, whole: bool
    ) -> Tensor:
        """`tokens`: int64 (slots, tokens).
        `slots`, `starts`: int64 (slots,), the slot and first position of each line.
        `kept`: indices of the tokens of each slot that get logits; 0: all tokens.
        `span`: how many positions of each slot's cache attention covers.
        `whole`: `slots` are all slots, in order.
        """
        positions = starts[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        mask = self._masks.of(positions, span)
        known = positions.clamp(max=self._last)  # padding may lie beyond the positions that the model knows
        return logits_of(self.model, tokens, known, mask, View(self.cache, slots, positions, span, whole), kept)


def logits_of(model: Any, tokens: Tensor, positions: Tensor, mask: Any, cache: Any, kept: Tensor | int = 0) -> Tensor:
    """Run the model. Positions and mask are given: transformers would derive them from one length for all slots."""
    logits: Tensor = model(
        input_ids=tokens,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=kept,
    ).logits
    return logits
