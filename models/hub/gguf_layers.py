"""Tells the layers of a GGUF file apart: those of a model, and those of a head that drafts for it.

A head drafts with the hidden states of its target. It is in the target's file, as its last layers (MTP), or in a file
of its own (MTP, EAGLE-3, DFlash, DSpark). Keys, tensors and architectures have llama.cpp's names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from models.hub.gguf_head import GgufHead

_OF_HEADS = {"eagle3": "eagle3", "dflash": "dflash", "gemma4-assistant": "mtp"}  # kinds by architectures of heads
_SHARES_KV = "gemma4-assistant"  # which reads the target's KV cache
_MARKOV = "markov_w1.weight"  # a tensor that DSpark has beside those of DFlash
_JOINS, _FIRST = "blk.{}.nextn.eh_proj.weight", "blk.0.attn_norm.weight"  # of each MTP layer; of a target


@dataclass(frozen=True, slots=True)
class DraftHead:
    """A head that drafts. `kind`: of `models.hub.names.HEADS`. `alone`: whether the file has no target beside it."""

    kind: str
    layers: int
    size: int  # bytes of its tensors
    kv_numbers: int  # in its KV cache for one token
    alone: bool


def draft_head(heads: Sequence[GgufHead]) -> DraftHead | None:
    """The head that drafts in a checked file; None: the file has none, or states MTP layers and lacks their tensors.

    `heads`: GGUF's heads of all parts of the file; the first has the metadata.
    """
    first = heads[0]
    architecture, blocks = first.get("general.architecture"), head_blocks(first)
    sizes = {name: size for each in heads for name, size in each.tensor_bytes().items()}
    if architecture in _OF_HEADS:
        kind = "dspark" if _MARKOV in sizes else _OF_HEADS[architecture]
        blocks = blocks or range(_blocks(first))
        cached = 0 if architecture == _SHARES_KV else _cached(first, blocks)
        return DraftHead(kind, len(blocks), sum(sizes.values()), cached, alone=True)
    if not blocks or not all(_JOINS.format(block) in sizes for block in blocks):
        return None
    alone = not blocks.start or _FIRST not in sizes
    of_head = sum(size for name, size in sizes.items() if alone or in_blocks(name, blocks))
    return DraftHead("mtp", len(blocks), of_head, _cached(first, blocks), alone)


def head_blocks(head: GgufHead) -> range:
    """The numbers of the blocks that a file states for MTP layers, behind those of the model. Its tensors may lack."""
    count = _blocks(head)
    return range(count - int(head.stated("nextn_predict_layers") or 0), count)


def in_blocks(tensor: str, blocks: range) -> bool:
    """Whether a tensor's name is of one of these blocks."""
    start, _, rest = tensor.partition(".")
    number = rest.partition(".")[0]
    return start == "blk" and number.isdecimal() and int(number) in blocks


def kv_numbers(head: GgufHead) -> int:
    """How many numbers the KV cache of a model has for one token, without those of its head."""
    blocks = range(head_blocks(head).start)
    if not isinstance(head.stated("attention.head_count_kv"), list):
        blocks = blocks[: len(blocks) // max(1, int(head.stated("full_attention_interval") or 1))]
    return _cached(head, blocks)


def greatest(stated: Any) -> int:
    """A number in the file's metadata, or the greatest of its numbers by layer; 0: there is none."""
    return int(max(stated, default=0) if isinstance(stated, list) else stated or 0)


def _blocks(head: GgufHead) -> int:
    return int(head.stated("block_count") or 0)


def _cached(head: GgufHead, blocks: range) -> int:
    """The numbers that blocks with attention cache for one token."""
    most = greatest(head.stated("attention.head_count"))
    usual = int(head.stated("embedding_length") or 0) // max(1, most)
    width = sum(int(head.stated(f"attention.{part}_length") or usual) for part in ("key", "value"))
    groups = head.stated("attention.head_count_kv")
    if isinstance(groups, list):
        return sum(groups[blocks.start : blocks.stop]) * width
    return len(blocks) * int(most if groups is None else groups) * width
