"""The MTP head of a model folder: a layer that drafts from the target's hidden states (DeepSeek-V3, arXiv 2412.19437).

The head reads pairs: a token, and the target's hidden state at the position before it. These states, and the head's
keys and values, lie in the cache of all slots beside the target's: each pair at the place of its hidden state. So a
rollback costs nothing, and the cache copies, moves and clears them as it does the rest. Pairs are read when the head is
asked, many in one launch. Behind the target's states the head goes on with its own ones.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from torch import Tensor
from transformers.modeling_layers import MtpModel

from backends.buckets import NARROW
from backends.torch.cache import HIDDEN, LaunchCache, ShapeProbe, SlotCache
from backends.torch.compiling import NEURON
from backends.torch.launch import Masks, Numbers, group_queries
from specpair.engines.backend import Entry, HeadEntry, Logits
from specpair.engines.errors import ModelLoadError, first_line
from specpair.engines.load_options import HEAD, NO_HEAD, LoadOptions
from specpair.speculation.acceptance.strategies import common_prefix

MOST_DRAFTED = 8  # tokens in a row, behind which a head is rarely right
_NAMES = "head_"  # what the names of the head's keys and values in the cache begin with
_VERSION = "5.20"  # the first of transformers that loads heads
_log = logging.getLogger("specpair.torch")


class HeadLayer:
    """The head as transformers runs it.

    `shapes`: what is cached for a token, (heads, width) by name: keys, values, and the target's hidden state.
    """

    def __init__(self, head: Any, context_length: int) -> None:
        """`head`: an MtpModel. Raises ModelLoadError for a layer whose mask is unknown."""
        group_queries(head)
        self._head, self._last = head, context_length - 1
        self._masks = Masks(head.config, "its head", head.dtype)
        self._kind = (getattr(head.config, "layer_types", None) or [None])[0]
        probe, width = ShapeProbe(), int(head.config.hidden_size)
        with torch.no_grad():
            one = torch.zeros(1, 1, dtype=torch.int64, device=head.device)
            self.run(one, torch.zeros(1, 1, width, dtype=head.dtype, device=head.device), one, one, 1, probe)
        cached = {f"{_NAMES}{name}": shape for name, shape in probe.shapes.tokens.items()}
        self.shapes = {HIDDEN: (1, width), **cached}

    def run(self, tokens: Tensor, states: Tensor, positions: Tensor, places: Tensor, span: int, cache: Any) -> Tensor:
        """The head's hidden states (slots, pairs, width) behind pairs of `tokens` (slots, pairs), at `positions`, and
        `states`, which lie at `places` of the cache and attend to its first `span` places."""
        head, positions = self._head, positions.clamp(max=self._last)
        mask = self._masks.of(places, span)
        embedded = head.embed_tokens(tokens)
        kind = {"layer_type": self._kind} if head.has_per_layer_rope else {}
        found: Tensor = head.layers[0](
            embedded,
            states,
            position_embeddings=head.rotary_emb(embedded, position_ids=positions, **kind),
            attention_mask=mask[self._kind] if isinstance(mask, dict) else mask,
            position_ids=positions,
            past_key_values=cache,
        )
        return found

    def logits(self, states: Tensor) -> Tensor:
        """The logits behind the head's hidden states."""
        found: Tensor = self._head.shared_head(states)
        return found


def read_head(
    model: Any, options: LoadOptions, compiler: str | None, stateful: bool, context_length: int
) -> HeadLayer | None:
    """The head of a model that was read, on its device; None: `options` want none, or any, and there is none.

    `stateful`: whether the model keeps states. Raises ModelLoadError if a head is required, and cannot be had.
    """
    if options.head == NO_HEAD:
        return None
    reason, cause = _obstacle(model, options, compiler, stateful), None
    if reason is None:
        try:
            head = MtpModel.from_pretrained(model, device_map={"": model.device})
            return HeadLayer(head.eval().requires_grad_(False), context_length)
        except Exception as error:  # any type: weights that are missing, a configuration without a head's, no memory
            reason, cause = f"transformers could not load its MTP head: {first_line(error)}", error
    if options.head == HEAD:
        raise ModelLoadError(f"draft: {options.model} cannot draft by itself: {reason}", "draft") from cause
    stated = getattr(model.config.get_text_config(), "num_mtp_layers", None)
    _log.log(logging.WARNING if stated else logging.DEBUG, "%s does not draft by itself: %s", options.model, reason)
    return None


def _obstacle(model: Any, options: LoadOptions, compiler: str | None, stateful: bool) -> str | None:
    """Why no head can be read, as far as is known before."""
    config = model.config.get_text_config()
    version, count = transformers.__version__, getattr(config, "num_mtp_layers", None)
    if options.model is None or not options.model.is_dir():
        return "the torch backend reads MTP heads from folders in Hugging Face layout only"
    if not hasattr(MtpModel, "forward_layer"):
        return f"transformers {version} loads no MTP heads: install {_VERSION} or newer"
    if not hasattr(config, "num_mtp_layers"):
        return f"transformers {version} loads no MTP head of the architecture {config.model_type}"
    if not count:
        return "its config.json states no MTP head"
    if count > 1:
        return f"it has {count} MTP heads, and the torch backend runs one"
    if stateful:
        return "it keeps states, beside which the torch backend runs no MTP head"
    if (options.tensor_parallel or 1) > 1:
        return "its MTP head cannot be spread over devices: leave tensor_parallel out"
    if compiler == NEURON:
        return "its MTP head is not compiled, and so does not run on a NeuronCore"
    return None


class _Line(NamedTuple):
    """Pairs of one slot in a launch: tokens, from position `first` on, and hidden states (pairs, width), which lie in
    the cache from `place` on."""

    slot: int
    first: int
    place: int
    tokens: Sequence[int] | Numbers
    states: Tensor


@dataclass(slots=True)
class _Chain:
    """What the head has read behind a slot's first `start` tokens: tokens, and its own hidden states at these."""

    start: int = -1
    tokens: list[int] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)


class TorchHead:
    """The head of a model, for all slots of its cache. One thread at a time may use it."""

    def __init__(self, layer: HeadLayer, cache: SlotCache, widest: int, size: int) -> None:
        """`cache`: has what `HeadLayer.shapes` names.
        `widest`: most pairs in a launch of one slot.
        `size`: ids of the vocabulary.
        """
        self._layer, self._cache, self._widest, self._size = layer, cache, widest, size
        self._hidden: Tensor = getattr(cache, HIDDEN)[:, 0]
        slots, positions, _ = self._hidden.shape
        self._tokens = np.zeros((slots, positions), np.int64)  # of the target, by their places in the cache
        self._read = [0] * slots  # pairs of a slot's tokens that were read
        self._chains = [_Chain() for _ in range(slots)]

    def passed(self, entries: Sequence[Entry]) -> None:
        """Note that the target has read these entries."""
        for entry in entries:
            self._tokens[entry.slot, entry.start : entry.end] = entry.tokens
            self.cut(entry.slot, entry.start)

    def moved(self, moves: Sequence[tuple[int, int, int]]) -> None:
        """Note that tokens are moved within a slot: slot, place and target of each, in the order of the moves."""
        for slot, place, target in moves:
            self._tokens[slot, target] = self._tokens[slot, place]

    def copied(self, source: int, destination: int, length: int) -> None:
        """Note that slot `destination` was made to hold the first `length` tokens of `source` and nothing else."""
        self._tokens[destination, :length] = self._tokens[source, :length]
        self._read[destination] = self._read[source]
        self.cut(destination, length)

    def cut(self, slot: int, length: int) -> None:
        """Forget the pairs that are not of a slot's first `length` tokens. The first token of all is in none."""
        self._read[slot] = min(self._read[slot], max(0, length - 1))
        self._chains[slot] = _Chain()

    def extend(self, batch: Sequence[HeadEntry]) -> Logits:
        """As `Backend.extend_head`. Where it fails, what was read by then stays."""
        for slot, start, tail in batch:
            chain = self._chains[slot]
            if chain.start != start:
                self.cut(slot, start)
                chain = self._chains[slot] = _Chain(start)
            same = common_prefix(chain.tokens, tail[:-1])
            del chain.tokens[same:], chain.states[same:]
            while start - 1 - self._read[slot] > NARROW:
                end = min(start - 1, self._read[slot] + self._widest)
                self._launch([self._waiting(slot, end)])
                self._read[slot] = end
        found: Logits = np.empty((len(batch), self._size), dtype=np.float32)
        left = list(enumerate(batch))
        while left:
            states = self._launch([self._next(*entry) for _, entry in left])
            logits = self._layer.logits(states)[:, : self._size].to(torch.float32).cpu().numpy()
            for (at, (slot, start, tail)), state, row in zip(left, states, logits, strict=True):
                self._read[slot], chain, found[at] = max(0, start - 1), self._chains[slot], row
                chain.tokens.append(tail[len(chain.tokens)])
                chain.states.append(state)
            left = [each for each in left if len(self._chains[each[1].slot].tokens) < len(each[1].tail)]
        return found

    def _waiting(self, slot: int, end: int) -> _Line:
        """The pairs of a slot's tokens that wait, up to the place `end`."""
        read = self._read[slot]
        return _Line(slot, read + 1, read, self._tokens[slot, read + 1 : end + 1], self._hidden[slot, read:end])

    def _next(self, slot: int, start: int, tail: Sequence[int]) -> _Line:
        """The pairs of a slot's tokens that wait, and that of the next token of a tail."""
        chain = self._chains[slot]
        token, at = tail[len(chain.tokens)], start + len(chain.tokens)
        if not start:  # nothing is before the first token of a text
            state = chain.states[-1] if at else torch.zeros_like(self._hidden[slot, 0])
            return _Line(slot, at, at, [token], state[None])
        if at > start:
            return _Line(slot, at, at - 1, [token], chain.states[-1][None])
        waiting = self._waiting(slot, start - 1)
        states = self._hidden[slot, self._read[slot] : start]
        return waiting._replace(tokens=np.append(waiting.tokens, token), states=states)

    def _launch(self, lines: Sequence[_Line]) -> Tensor:
        """Read pairs of several slots in one launch. Returns the head's hidden state behind the last of each, (slots,
        width)."""
        device = self._hidden.device
        ends = [len(line.tokens) - 1 for line in lines]
        # Lines are padded with their last pair, which writes the same once more: nothing but pairs gets into the cache.
        at = np.minimum(np.arange(max(ends) + 1), np.array(ends)[:, None])
        slots = np.array([line.slot for line in lines], np.int64)
        tokens = np.stack([np.asarray(line.tokens, np.int64)[row] for line, row in zip(lines, at, strict=True)])
        places = at + np.array([[line.place] for line in lines])
        positions = at + np.array([[line.first] for line in lines])
        ids, whole, known, where = (torch.from_numpy(each).to(device) for each in (tokens, slots, positions, places))
        with torch.no_grad():
            states = torch.stack([line.states[row] for line, row in zip(lines, torch.from_numpy(at), strict=True)])
            span = int(places.max()) + 1
            view = LaunchCache(self._cache, whole, where, span, False, _NAMES)
            found = self._layer.run(ids, states, known, where, span, view)
        last: Tensor = found[torch.arange(len(lines), device=device), torch.tensor(ends, device=device)]
        return last
