"""Checks a GGUF model by its head: its metadata against its tensors, and these against its files' sizes.

llama.cpp refuses much by itself, but ends the process over some values, and reads beyond the end of some arrays.
"""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from models.errors import BadHead
from models.hub.gguf_head import STRING, GgufHead, read_head
from models.hub.gguf_layers import draft_head, head_blocks
from models.hub.names import parts_of

_MOST = 2**31 - 1
# What llama.cpp takes, at least and at most, under the architecture's name. Of some there may be one for each layer.
_RANGES = {
    "block_count": (1, 512),
    **dict.fromkeys(("context_length", "embedding_length"), (1, _MOST)),
    **dict.fromkeys(
        ("expert_count", "expert_group_count", "expert_group_used_count", "nextn_predict_layers"), (0, 512)
    ),
    **dict.fromkeys(("full_attention_interval", "rope.dimension_count"), (0, _MOST)),
    **{f"attention.{part}_length": (0, _MOST) for part in ("key", "value")},
    **{
        f"ssm.{part}": (0, _MOST)
        for part in ("conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count")
    },
}
_BY_LAYER = {
    "expert_used_count": (0, 512),
    "attention.sliding_window": (0, 2**24),
    **dict.fromkeys(("attention.head_count", "attention.head_count_kv", "feed_forward_length"), (0, _MOST)),
}
_KINDS = {"general.file_type": int, "tokenizer.ggml.model": str, "tokenizer.ggml.pre": str}
_SCALINGS = ("none", "linear", "yarn", "longrope")  # of positions
_ALIGNMENT = 32  # bytes, of a multiple of which llama.cpp needs the places of tensors
_EMBEDDING, _STATES_OUT = "token_embd.weight", ".ssm_out.weight"
_HEADED = re.compile(r"blk\.(\d{1,5})\.attn_([qk])\.weight")  # the rows of which are those of heads
_TURNED_WHOLE = ("llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe")  # architectures whose positions turn whole heads
_UNGUARDED = ("lfm2", "lfm2moe")  # architectures of which llama.cpp does not compare heads with tensors
_INTEGERS = range(24, 29)  # ggml's types that hold no weights
_WHOLE_NUMBERS, _FLOATS = (4, 5), (6,)  # types of arrays in GGUF


def read_parts(path: Path) -> list[GgufHead]:
    """The heads of a file, and of the other parts of a model that is split. Raises BadHead, and OSError."""
    head = read_head(path)
    count = head.get("split.count")
    if type(count) is not int or count < 2:
        return [head]
    names = parts_of(path.name)
    if len(names) != count or names[0] != path.name:
        raise BadHead(
            f"{path} is one of {count} parts of a model: name the first, whose name ends with -00001-of-{count:05}.gguf"
        )
    others = [path.with_name(name) for name in names[1:]]
    for other in others:
        if not other.is_file():
            raise BadHead(
                f"{path} is the first of {count} parts of a model, and {other.name} is not beside it: fetch it"
            )
    return [head, *map(read_head, others)]


def check_model(name: str, heads: Sequence[GgufHead], *, lone_head: bool = False) -> None:
    """Raises BadHead, with the first fault, for a model that llama.cpp should not load.

    `name`: of its file. `heads`: of all of its parts.
    `lone_head`: whether the file may be a head that drafts for a target, and no model. llama.cpp crashes where it runs
        such a file as a model.
    """
    for wrong in _Check(heads).wrong():
        raise BadHead(f"{name} is damaged, or made for another program: {wrong}: fetch it again, or another one")
    head = None if lone_head else draft_head(heads)
    if head is not None and head.alone:
        raise BadHead(
            f"{name} is no model, but the {head.kind} head of one, which drafts for it: name the file of the model"
        )


class _Check:
    """Yields the faults of a model. `_head`: of the first part, which has the metadata."""

    def __init__(self, heads: Sequence[GgufHead]) -> None:
        self._heads, self._head = heads, heads[0]
        self._tensors = {tensor.name: tensor for head in heads for tensor in head.tensors}
        self._architecture = heads[0].get("general.architecture")

    def wrong(self) -> Iterator[str]:
        if not isinstance(self._architecture, str) or not self._architecture:
            yield f"its general.architecture is {self._architecture!r:.99}"
        yield from self._counts()
        yield from self._others()
        yield from self._experts()
        yield from self._vocabulary()
        yield from self._weights()

    def _stated(self, key: str) -> Any:
        return self._head.stated(key)

    def _most_of(self, key: str) -> int:
        """The greatest of a key's checked values; 0: it has none."""
        value = self._stated(key)
        return max(value, default=0) if isinstance(value, list) else value or 0

    def _head_width(self) -> int:
        heads = self._most_of("attention.head_count")
        width: int = self._stated("attention.key_length") or self._most_of("embedding_length") // max(1, heads)
        return width

    def _fault(self, key: str, must: str) -> str:
        return f"its {self._architecture}.{key} is {self._stated(key)!r:.99}, and {must}"

    def _counts(self) -> Iterator[str]:
        for key, (least, most) in {**_RANGES, **_BY_LAYER}.items():
            value = self._stated(key)
            listed = value if isinstance(value, list) and key in _BY_LAYER else [] if value is None else [value]
            if not all(type(each) is int and least <= each <= most for each in listed):
                yield self._fault(key, f"must be a whole number from {least} to {most}")
        layers = self._stated("block_count") or 0
        if (self._stated("nextn_predict_layers") or 0) > layers:
            yield self._fault("nextn_predict_layers", f"there are {layers} blocks")
        head = draft_head(self._heads)  # a file of MTP layers alone states all blocks of its target
        here = len(head_blocks(self._head)) if head is not None and head.alone else layers
        if here > len(self._tensors):
            yield self._fault("block_count", f"there are {len(self._tensors)} tensors")
        for key in _BY_LAYER:
            value = self._stated(key)
            if isinstance(value, list) and len(value) < layers:
                yield self._fault(key, f"there are {layers} blocks")

    def _others(self) -> Iterator[str]:
        for key, entry in self._head.entries.items():
            number = entry.value
            if key.endswith("epsilon") and not (isinstance(number, float) and 0 <= number < math.inf):
                yield f"its {key} is {number!r:.99}, and must be a number from 0"
        for key, kind in _KINDS.items():
            value = self._head.get(key)
            if value is not None and type(value) is not kind:
                yield f"its {key} is {value!r:.99}, which is not of the type that it must have"
        scaling = self._stated("rope.scaling.type")
        if scaling is not None and scaling not in _SCALINGS:
            yield self._fault("rope.scaling.type", f"must be one of {', '.join(_SCALINGS)}")
        turned, width = self._stated("rope.dimension_count"), self._head_width()
        if turned is not None:
            heads = self._most_of("attention.head_count")
            if turned % 2 or (heads and not 0 < turned <= width):
                yield self._fault("rope.dimension_count", f"must be even, above 0, and no more than a head's {width}")
            if heads and turned != width and self._architecture in _TURNED_WHOLE:
                yield self._fault("rope.dimension_count", f"must be a head's {width}")

    def _experts(self) -> Iterator[str]:
        experts, used = self._most_of("expert_count"), self._most_of("expert_used_count")
        groups, groups_used = self._most_of("expert_group_count"), self._most_of("expert_group_used_count")
        if used > experts or (experts and not used):
            yield self._fault("expert_used_count", f"there are {experts} experts")
        if groups and groups >= experts:
            yield self._fault("expert_group_count", f"there are {experts} experts")
        if groups > 1 and (experts % groups or not 0 < groups_used < groups):
            yield self._fault("expert_group_used_count", f"there are {groups} groups of {experts} experts")

    def _weights(self) -> Iterator[str]:
        for tensor in self._tensors.values():
            if tensor.offset % _ALIGNMENT:
                yield f"its tensor {tensor.name!r:.99} begins at {tensor.offset}, which is no multiple of {_ALIGNMENT}"
            # Whole numbers are in a table of which experts take a token, and nowhere else.
            if tensor.kind in _INTEGERS and len(tensor.shape) > 1 and "tid2eid" not in tensor.name:
                yield f"its tensor {tensor.name!r:.99} is of the type {tensor.type_name}, which holds no weights"
            if (found := _HEADED.fullmatch(tensor.name)) is not None:
                key = "attention.head_count" if found[2] == "q" else "attention.head_count_kv"
                heads = self._stated(key)
                heads = heads[int(found[1]) % len(heads)] if isinstance(heads, list) and heads else heads
                exact = self._architecture in _UNGUARDED and tensor.shape[-1:] != ((heads or 0) * self._head_width(),)
                if heads and tensor.shape and (tensor.shape[-1] % heads or exact):
                    yield self._fault(key, f"its tensor {tensor.name!r} is {tensor.shape}")
            inner = self._stated("ssm.inner_size")
            if inner is not None and tensor.name.endswith(_STATES_OUT) and tensor.shape[:1] != (inner,):
                yield self._fault("ssm.inner_size", f"its tensor {tensor.name!r:.99} is {tensor.shape}")
        width, tokens = self._stated("embedding_length"), self._head.get("tokenizer.ggml.tokens")
        wanted = (width, None if tokens is None else len(tokens))
        if _EMBEDDING in self._tensors:
            shape = self._tensors[_EMBEDDING].shape
            if len(shape) != 2 or any(want not in (None, there) for want, there in zip(wanted, shape, strict=True)):
                yield f"its tensor {_EMBEDDING!r} is {shape}, and its embedding_length and tokens are {wanted}"

    def _vocabulary(self) -> Iterator[str]:
        entries = self._head.entries
        tokens = self._head.get("tokenizer.ggml.tokens")
        if tokens is None:
            return
        for key, kinds in (
            ("tokens", (STRING,)),
            ("merges", (STRING,)),
            ("scores", _FLOATS),
            ("token_type", _WHOLE_NUMBERS),
        ):
            entry = entries.get(f"tokenizer.ggml.{key}")
            if entry is None:
                continue
            if not isinstance(entry.value, list) or (entry.value and entry.item not in kinds):
                yield f"its tokenizer.ggml.{key} is no array of the type that it must have"
            elif key != "merges" and len(entry.value) != len(tokens):
                yield f"its tokenizer.ggml.{key} has {len(entry.value)} items for {len(tokens)} tokens"
        distinct: set[str | int] = set(tokens)
        if len(distinct) != len(tokens) or "\0" in "".join(tokens):
            # llama.cpp names tokens without a text itself, and takes texts up to their first NUL.
            distinct = {text.partition("\0")[0] or number for number, text in enumerate(tokens)}
        if len(distinct) != len(tokens):
            yield f"its tokenizer.ggml.tokens has {len(tokens)} tokens, of which {len(distinct)} differ"
        if self._head.get("tokenizer.ggml.model") == "llama":
            missing = [byte for byte in range(256) if not {f"<0x{byte:02X}>", chr(byte)} & distinct]
            if missing:
                yield f"its tokenizer.ggml.tokens has none for the byte {missing[0]}, which a text may have"
