"""What the head of a GGUF file says of its model: what it is, how large, what its tokens are. Nothing is loaded."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from specpair.engines.backend import DEFAULT_TEMPLATE
from specpair.engines.token_spelling import SPACE, byte_level, sentencepiece
from specpair.engines.vocabulary import Kind
from specpair.hub.gguf_head import GgufHead

# Numbers of llama.cpp's `llama_ftype`.
_QUANTIZATIONS = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K"}
_QUANTIZATIONS |= {11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M"}
_QUANTIZATIONS |= {18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S"}
_QUANTIZATIONS |= {25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M"}
_QUANTIZATIONS |= {32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE"}
_TEMPLATE = "tokenizer.chat_template"
_F16 = 2  # bytes of a number in a KV cache of the default type
_STATES = ("ssm.conv_kernel", "shortconv.l_cache", "wkv.head_size")  # what a layer with a recurrent state states
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = range(1, 7)  # types of tokens in GGUF files
_KINDS = {_CONTROL: Kind.CONTROL, _UNKNOWN: Kind.CONTROL, _UNUSED: Kind.UNUSED}
_AS_READ = "surrogateescape"  # how a head's texts were decoded


@dataclass(frozen=True)
class Described:
    """A model by the head of its first file. `file_bytes`: of all its files."""

    name: str
    head: GgufHead
    file_bytes: int

    @property
    def architecture(self) -> str:
        return str(self.head.get("general.architecture") or "unknown")

    @property
    def quantization(self) -> str:
        """The type of most weights, as tags name it; a question mark where the file does not say."""
        return _QUANTIZATIONS.get(self.head.get("general.file_type"), "?")

    @property
    def parameters(self) -> int:
        """Of the first file."""
        return sum(math.prod(tensor.shape) for tensor in self.head.tensors)

    @property
    def weight_bytes(self) -> int:
        return self.file_bytes - self.head.size

    @property
    def bytes_a_token(self) -> int:
        """Bytes of weights that a pass over one token reads: of a mixture of experts, those of the chosen ones."""
        used, count = (int(self.head.stated(f"expert_{which}") or 0) for which in ("used_count", "count"))
        if not (used and count):
            return self.weight_bytes
        placed = sorted(self.head.tensors, key=lambda each: each.offset)
        sizes = zip(placed, [*(each.offset for each in placed[1:]), self.file_bytes], strict=True)
        experts = sum(end - tensor.offset for tensor, end in sizes if "_exps." in tensor.name)
        return self.weight_bytes - experts * (count - used) // count

    @property
    def context(self) -> int:
        """Tokens of context that it was trained for; 0: the file does not say."""
        return int(self.head.stated("context_length") or 0)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache for one token, in f16."""
        layers, heads = int(self.head.stated("block_count") or 0), self.head.stated("attention.head_count")
        most = max(heads) if isinstance(heads, list) and heads else heads if isinstance(heads, int) else 0
        usual = int(self.head.stated("embedding_length") or 0) // max(1, most)
        width = sum(int(self.head.stated(f"attention.{part}_length") or usual) for part in ("key", "value"))
        cached = self.head.stated("attention.head_count_kv")
        cached = sum(cached) if isinstance(cached, list) else layers * int(most if cached is None else cached)
        return cached * width * _F16

    @property
    def kind(self) -> str:
        """What its layers are, in words."""
        states = [key for key in _STATES if self.head.stated(key)]
        attends = bool(self.kv_bytes)
        words = ["hybrid" if attends else "recurrent"] if states else []
        if self.head.stated("expert_count"):
            used, count = self.head.stated("expert_used_count"), self.head.stated("expert_count")
            words.append(f"mixture of experts, {used} of {count}")
        if self.head.stated("attention.sliding_window"):
            words.append(f"sliding window of {self.head.stated('attention.sliding_window')} tokens")
        return ", ".join(words) or "dense"

    @cached_property
    def chat_templates(self) -> Mapping[str, str]:
        """By name."""
        named = {
            key.removeprefix(_TEMPLATE).removeprefix(".") or DEFAULT_TEMPLATE: entry.value
            for key, entry in self.head.entries.items()
            if key == _TEMPLATE or key.startswith(f"{_TEMPLATE}.")
        }
        return {name: named[name] for name in sorted(named) if isinstance(named[name], str)}

    @property
    def ids(self) -> int:
        """How many tokens it has; 0: the file has no tokenizer."""
        return len(self.head.get("tokenizer.ggml.tokens") or ())

    @cached_property
    def vocabulary(self) -> "HeadVocabulary | None":
        """None: the file has no tokenizer."""
        texts = self.head.get("tokenizer.ggml.tokens")
        if not texts:
            return None
        types = self.head.get("tokenizer.ggml.token_type") or [_NORMAL] * len(texts)
        scheme = str(self.head.get("tokenizer.ggml.model"))
        kinds = tuple(_KINDS.get(each, Kind.ORDINARY) for each in types)
        pieces = tuple(_piece(text, kind, scheme) for text, kind in zip(texts, types, strict=True))
        ids = (self.head.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
        return HeadVocabulary(pieces, kinds, scheme, *ids)


@dataclass(frozen=True)
class HeadVocabulary:
    """The tokens of a model as its file lists them. `begin`, `end`: ids that the file states; None: it states none."""

    pieces: tuple[bytes, ...]
    kinds: tuple[Kind, ...]
    scheme: str  # of encoding: gpt2 (byte-level), llama (SentencePiece), …
    begin: int | None
    end: int | None


def _piece(text: str, kind: int, scheme: str) -> bytes:
    """The bytes that a token stands for."""
    if kind not in (_CONTROL, _USER, _UNKNOWN):
        if scheme == "gpt2":
            return byte_level(text, _AS_READ)
        if kind == _BYTE:
            return sentencepiece(text, _AS_READ)
        text = text.replace(SPACE, " ")
    return text.encode(errors=_AS_READ)
