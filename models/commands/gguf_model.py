"""What the head of a GGUF file says of its model."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from models.commands.described import Described, Layers, ListedTokens
from models.hub.gguf_head import GgufHead
from specpair.engines.backend import DEFAULT_TEMPLATE
from specpair.engines.model_files import SPACE, byte_level, controls, named_ends, sentencepiece, shown
from specpair.engines.vocabulary import Kind, if_control

# Numbers of llama.cpp's `llama_ftype`.
_QUANTIZATIONS = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K"}
_QUANTIZATIONS |= {11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M"}
_QUANTIZATIONS |= {18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S"}
_QUANTIZATIONS |= {25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M"}
_QUANTIZATIONS |= {32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE"}
_TEMPLATE = "tokenizer.chat_template"
_STATES = ("ssm.conv_kernel", "shortconv.l_cache", "wkv.head_size")  # what a layer with a recurrent state states
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = range(1, 7)  # types of tokens in GGUF files
_KINDS = {_CONTROL: Kind.CONTROL, _UNKNOWN: Kind.CONTROL, _UNUSED: Kind.UNUSED}
_USUAL = {"llama": (1, 2), "gpt2": (11, 11)}  # begin and end ids that llama.cpp takes where the file states none
# Splits of texts with which llama.cpp puts a begin token before a text where the file does not say.
_BEGINNING = {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken"}
_AS_READ = "surrogateescape"  # how a head's texts were decoded


class GgufModel(Described):
    """A model by the heads of its files, which were checked. The first one has what is told of all."""

    def __init__(self, name: str, heads: Sequence[GgufHead]) -> None:
        self.name, self._heads = name, heads
        self.head = heads[0]
        self.weight_bytes = sum(head.file_size - head.size for head in heads)
        self.quantization = _QUANTIZATIONS.get(self.head.get("general.file_type")) or self._most
        self.architecture = str(self.head.get("general.architecture") or "unknown")

    @property
    def _most(self) -> str:
        """The type that most numbers have, for files that state none."""
        counts: dict[str, int] = {}
        for head in self._heads:
            for tensor in head.tensors:
                counts[tensor.type_name] = counts.get(tensor.type_name, 0) + math.prod(tensor.shape)
        return max(counts, key=lambda name: counts[name], default="?")

    @property
    def parameters(self) -> int:
        return sum(math.prod(tensor.shape) for head in self._heads for tensor in head.tensors)

    @property
    def bytes_a_token(self) -> int:
        experts = self.layers.experts
        if experts is None:
            return self.weight_bytes
        of_experts = 0
        for head in self._heads:
            of_experts += sum(count for name, count in head.tensor_bytes().items() if "_exps." in name)
        used, count = experts
        return self.weight_bytes - of_experts * (count - used) // count

    @property
    def context(self) -> int:
        return int(self.head.stated("context_length") or 0)

    @property
    def kv_numbers(self) -> int:
        layers, most = int(self.head.stated("block_count") or 0), _greatest(self.head.stated("attention.head_count"))
        usual = int(self.head.stated("embedding_length") or 0) // max(1, most)
        width = sum(int(self.head.stated(f"attention.{part}_length") or usual) for part in ("key", "value"))
        cached = self.head.stated("attention.head_count_kv")
        if isinstance(cached, list):
            return sum(cached) * width
        attending = layers // max(1, int(self.head.stated("full_attention_interval") or 1))
        return attending * int(most if cached is None else cached) * width

    @cached_property
    def layers(self) -> Layers:
        used, count = (_greatest(self.head.stated(f"expert_{which}")) for which in ("used_count", "count"))
        return Layers(
            recurrent=any(self.head.stated(key) for key in _STATES),
            attends=bool(self.kv_numbers),
            experts=(used, count) if used and count else None,
            window=_greatest(self.head.stated("attention.sliding_window")) or None,
        )

    @cached_property
    def chat_templates(self) -> Mapping[str, str]:
        named = {
            key.removeprefix(_TEMPLATE).removeprefix(".") or DEFAULT_TEMPLATE: entry.value
            for key, entry in self.head.entries.items()
            if key == _TEMPLATE or key.startswith(f"{_TEMPLATE}.")
        }
        return {name: named[name] for name in sorted(named) if isinstance(named[name], str)}

    @property
    def ids(self) -> int:
        return len(self.head.get("tokenizer.ggml.tokens") or ())

    @cached_property
    def vocabulary(self) -> ListedTokens | None:
        """As llama.cpp reads it."""
        texts = self.head.get("tokenizer.ggml.tokens")
        if not texts:
            return None
        types = self.head.get("tokenizer.ggml.token_type") or [_NORMAL] * len(texts)
        scheme = str(self.head.get("tokenizer.ggml.model"))
        kinds = [_KINDS.get(each, Kind.ORDINARY) for each in types]
        kinds = [_kind_of(text, kind) for text, kind in zip(texts, kinds, strict=True)]
        pieces = [_piece(text, kind, scheme) for text, kind in zip(texts, types, strict=True)]
        ids = dict(zip(texts, range(len(texts)), strict=True))
        for kind, tokens in ((Kind.CONTROL, controls(ids)), (Kind.ORDINARY, shown(ids))):
            for token in tokens:
                pieces[token], kinds[token] = texts[token].encode(errors=_AS_READ), kind
        begin, end = _USUAL.get(scheme, (None, None))
        begin, end = self._id("bos", begin), self._id("eos", end)
        stated = {each for each in (end, self._id("eot"), self._id("eom")) if each is not None and each < len(texts)}
        return ListedTokens(
            pieces,
            kinds,
            scheme,
            if_control(begin, kinds),
            if_control(end, kinds),
            frozenset(stated | named_ends(ids)),
            self._adds_begin(scheme),
        )

    def _adds_begin(self, scheme: str) -> bool:
        """Whether the begin token is put before a text: as the file states it, else as llama.cpp has it."""
        stated = self.head.get("tokenizer.ggml.add_bos_token")
        usual = scheme == "llama" or self.head.get("tokenizer.ggml.pre") in _BEGINNING
        return usual if stated is None else bool(stated)

    def _id(self, name: str, usual: int | None = None) -> int | None:
        stated = self.head.get(f"tokenizer.ggml.{name}_token_id")
        return stated if isinstance(stated, int) and 0 <= stated < self.ids else usual


def _greatest(stated: Any) -> int:
    """A number that a file states, or the greatest of those that it states by layer; 0: it states none."""
    return int(max(stated, default=0) if isinstance(stated, list) else stated or 0)


def _kind_of(text: str, kind: Kind) -> Kind:
    return Kind.UNUSED if kind == Kind.CONTROL and "unused" in text else kind


def _piece(text: str, kind: int, scheme: str) -> bytes:
    """The bytes that a token stands for."""
    if kind == _UNUSED:
        return b""
    if kind not in (_CONTROL, _USER, _UNKNOWN):
        if scheme == "gpt2":
            return byte_level(text, _AS_READ)
        if kind == _BYTE:
            return sentencepiece(text, _AS_READ)
        text = text.replace(SPACE, " ")
    return text.encode(errors=_AS_READ)
