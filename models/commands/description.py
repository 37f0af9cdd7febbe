"""Describes a model by its files, without loading it, and says whether two models make a pair."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from models.errors import BadHead
from models.hub.gguf_head import GgufHead
from models.hub.gguf_layers import DraftHead, draft_head, greatest, head_blocks, in_blocks, kv_numbers
from models.safetensors_file import StoredTensor
from specpair.engines import model_files
from specpair.engines.backend import DEFAULT_TEMPLATE
from specpair.engines.errors import ModelLoadError
from specpair.engines.model_files import (
    SPACE,
    StatedTokens,
    byte_level,
    ids_of,
    listed,
    read_chat_templates,
    read_json,
    read_tokens,
    sentencepiece,
)
from specpair.engines.vocabulary import Kind, hashes, if_control

# Numbers of llama.cpp's `llama_ftype`.
_QUANTIZATIONS = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K"}
_QUANTIZATIONS |= {11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M"}
_QUANTIZATIONS |= {18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S"}
_QUANTIZATIONS |= {25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M"}
_QUANTIZATIONS |= {32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE"}
_TEMPLATE = "tokenizer.chat_template"
_GGUF_STATES = ("ssm.conv_kernel", "shortconv.l_cache", "wkv.head_size")  # what a layer with a recurrent state states
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = range(1, 7)  # types of tokens in GGUF files
_KINDS = {_CONTROL: Kind.CONTROL, _UNKNOWN: Kind.CONTROL, _UNUSED: Kind.UNUSED}
_USUAL = {"llama": (1, 2), "gpt2": (11, 11)}  # begin and end ids that llama.cpp takes where the file states none
# Splits of texts with which llama.cpp puts a begin token before a text where the file does not say.
_BEGINNING = {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken"}
_AS_READ = "surrogateescape"  # how a head's texts were decoded
_STATES = ("mamba_d_state", "mamba_n_heads", "state_size", "conv_L_cache", "linear_conv_kernel_dim")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_USED = ("num_experts_per_tok", "num_experts_per_token", "moe_topk")
_TYPES = {"F32": "F32", "F16": "F16", "BF16": "BF16", "F8_E4M3": "FP8", "F8_E5M2": "FP8"}
_NO_ATTENTION = ("linear", "mamba", "conv", "recurrent")  # in the names of types of layers


@dataclass(frozen=True)
class Layers:
    """The kinds of a model's layers. `experts`: how many a token uses, of how many; `window`: tokens."""

    recurrent: bool = False  # at least some have a recurrent state
    attends: bool = True  # at least some have attention
    experts: tuple[int, int] | None = None
    window: int | None = None

    @property
    def words(self) -> str:
        words = ["hybrid" if self.attends else "recurrent"] if self.recurrent else []
        if self.experts:
            words.append(f"mixture of experts, {self.experts[0]} of {self.experts[1]}")
        if self.window:
            words.append(f"sliding window of {self.window} tokens")
        return ", ".join(words) or "dense"


@dataclass(frozen=True)
class ListedTokens:
    """The tokens of a model as its files list them, in classes as engines read them.

    `begin`, `end`: ids that the files state; None: they state none, or one that is no control token.
    `ends`: all ids that end a text.
    `adds_begin`: whether the begin token is put before a text; None: the files leave it to the tokenizer's type.
    """

    pieces: Sequence[bytes]
    kinds: Sequence[Kind]
    scheme: str  # of encoding, as the files name it
    begin: int | None
    end: int | None
    ends: frozenset[int]
    adds_begin: bool | None = None

    @cached_property
    def ordinary(self) -> str:
        """The hash of its text tokens, as in `/model`."""
        return hashes(self.pieces, self.kinds, len(self.pieces))[0]

    def spelled(self, ids: Iterable[int]) -> str:
        """Ids with their tokens, as `151645 <|im_end|>`."""
        return ", ".join(f"{token} {self.pieces[token].decode(errors='replace')}" for token in sorted(ids))


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """A model in a GGUF file or in a folder of safetensors."""

    name: str
    architecture: str
    quantization: str  # the type of most weights, as tags name it; a question mark where the files do not say
    weight_bytes: int  # of all files
    parameters: int  # numbers that the weights are
    expert_bytes: int  # of the weights, those of experts
    context: int  # tokens of context that it was trained for; 0: the files do not say
    kv_numbers: int  # in the KV cache for one token, without those of the head
    layers: Layers
    chat_templates: Mapping[str, str]  # by name
    ids: int  # tokens that it has; 0: the files have no tokenizer
    read_vocabulary: Callable[[], ListedTokens | None]  # takes a second; may raise BadHead
    head: DraftHead | None = None  # that drafts for the model; None: it has none, or is a folder
    head_file: str | None = None  # the name of the head's own file, also if that has not been fetched

    @cached_property
    def vocabulary(self) -> ListedTokens | None:
        """None: the files have no tokenizer. Raises BadHead."""
        return self.read_vocabulary()

    def with_head(self, head: DraftHead | None, file: str) -> "ModelDescription":
        """The same model with the head in a file of its own, unless the model's file has one."""
        return self if self.head or not head or not head.alone else replace(self, head=head, head_file=file)

    @property
    def bytes_a_token(self) -> int:
        """Bytes of weights that a pass over one token reads: of experts the chosen ones, and nothing of a head."""
        read = self.weight_bytes - (0 if self.head is None or self.head.alone else self.head.size)
        if self.layers.experts is None:
            return read
        used, count = self.layers.experts
        return read - self.expert_bytes * (count - used) // count


def most_common(numbers_of: Iterable[tuple[str, int]]) -> str:
    """The type of most weights. `numbers_of`: the type of each tensor, and its number of weights."""
    counts: dict[str, int] = {}
    for name, numbers in numbers_of:
        counts[name] = counts.get(name, 0) + numbers
    return max(counts, key=lambda name: counts[name], default="?")


@dataclass(frozen=True)
class PairVerdict:
    """`difference`: why the draft model needs --translate, in words; None: the two have the same vocabulary."""

    difference: str | None
    share: float  # of the bytes that a step of the target reads, those that a step of the draft model reads

    @property
    def pairs(self) -> bool:
        return self.difference is None


def judge(draft: ModelDescription, target: ModelDescription) -> PairVerdict:
    """Judge a draft model for a target."""
    share = draft.bytes_a_token / max(1, target.bytes_a_token)
    return PairVerdict(_difference(draft.vocabulary, target.vocabulary), share)


def _difference(draft: ListedTokens | None, target: ListedTokens | None) -> str | None:
    """How the vocabularies differ, by the rule of `engines.vocabulary.cannot_draft`."""
    if draft is None or target is None:
        return f"the {'draft model' if draft is None else 'target'} has no tokenizer in its files"
    if draft.begin != target.begin:
        begins = ("none" if each is None else str(each) for each in (draft.begin, target.begin))
        return "the begin token is {} in the draft model, {} in the target".format(*begins)
    if draft.ends != target.ends:
        return f"the end tokens are {sorted(draft.ends)} in the draft model, {sorted(target.ends)} in the target"
    both = zip(draft.pieces, draft.kinds, target.pieces, target.kinds, strict=False)
    for token, (ours, kind, theirs, other) in enumerate(both):
        if Kind.UNUSED in (kind, other) or kind == other == Kind.CONTROL:
            continue
        if kind != other or ours != theirs:
            return f"id {token} is {_shown(ours, kind)} in the draft model, {_shown(theirs, other)} in the target"
    return None


def _shown(piece: bytes, kind: Kind) -> str:
    text = repr(piece.decode(errors="replace"))
    return f"the control token {text}" if kind == Kind.CONTROL else text


def describe_gguf(name: str, heads: Sequence[GgufHead]) -> ModelDescription:
    """A model by the checked heads of its files. The first head has the metadata."""
    head, tensors = heads[0], [tensor for each in heads for tensor in each.tensors]
    drafts, blocks = draft_head(heads), head_blocks(head)
    cached = drafts.kv_numbers if drafts is not None and drafts.alone else kv_numbers(head)
    used, count = (greatest(head.stated(f"expert_{which}")) for which in ("used_count", "count"))
    by_name = [item for each in heads for item in each.tensor_bytes().items()]
    named = {
        key.removeprefix(_TEMPLATE).removeprefix(".") or DEFAULT_TEMPLATE: entry.value
        for key, entry in head.entries.items()
        if key == _TEMPLATE or key.startswith(f"{_TEMPLATE}.")
    }
    stated = _QUANTIZATIONS.get(head.get("general.file_type"))
    return ModelDescription(
        name=name,
        architecture=str(head.get("general.architecture") or "unknown"),
        quantization=stated or most_common((each.type_name, math.prod(each.shape)) for each in tensors),
        weight_bytes=sum(each.file_size - each.size for each in heads),
        parameters=sum(math.prod(tensor.shape) for tensor in tensors),
        expert_bytes=sum(size for tensor, size in by_name if "_exps." in tensor and not in_blocks(tensor, blocks)),
        context=int(head.stated("context_length") or 0),
        kv_numbers=cached,
        layers=Layers(
            recurrent=any(head.stated(key) for key in _GGUF_STATES),
            attends=bool(cached),
            experts=(used, count) if used and count else None,
            window=greatest(head.stated("attention.sliding_window")) or None,
        ),
        chat_templates={each: named[each] for each in sorted(named) if isinstance(named[each], str)},
        ids=len(head.get("tokenizer.ggml.tokens") or ()),
        read_vocabulary=partial(_gguf_tokens, head),
        head=drafts,
    )


def _gguf_tokens(head: GgufHead) -> ListedTokens | None:
    """The tokens as llama.cpp reads them; None: the file has none."""
    texts = head.get("tokenizer.ggml.tokens")
    if not texts:
        return None
    types = head.get("tokenizer.ggml.token_type") or [_NORMAL] * len(texts)
    scheme = str(head.get("tokenizer.ggml.model"))
    kinds = [_kind(text, kind) for text, kind in zip(texts, types, strict=True)]
    pieces = [_piece(text, kind, scheme) for text, kind in zip(texts, types, strict=True)]
    ids = dict(zip(texts, range(len(texts)), strict=True))
    for kind, tokens in ((Kind.CONTROL, model_files.controls(ids)), (Kind.ORDINARY, model_files.shown(ids))):
        for token in tokens:
            pieces[token], kinds[token] = texts[token].encode(errors=_AS_READ), kind
    begin, end = _USUAL.get(scheme, (None, None))
    begin, end = _id(head, "bos", begin), _id(head, "eos", end)
    stated = {each for each in (end, _id(head, "eot"), _id(head, "eom")) if each is not None and each < len(texts)}
    adds = head.get("tokenizer.ggml.add_bos_token")  # where the file does not say, llama.cpp goes by the others
    usual = scheme == "llama" or head.get("tokenizer.ggml.pre") in _BEGINNING
    return ListedTokens(
        pieces,
        kinds,
        scheme,
        begin=if_control(begin, kinds),
        end=if_control(end, kinds),
        ends=frozenset(stated | model_files.named_ends(ids)),
        adds_begin=bool(usual if adds is None else adds),
    )


def _id(head: GgufHead, name: str, usual: int | None = None) -> int | None:
    stated = head.get(f"tokenizer.ggml.{name}_token_id")
    return stated if isinstance(stated, int) and 0 <= stated < len(head.get("tokenizer.ggml.tokens")) else usual


def _kind(text: str, kind: int) -> Kind:
    found = _KINDS.get(kind, Kind.ORDINARY)
    return Kind.UNUSED if found == Kind.CONTROL and "unused" in text else found


def _piece(text: str, kind: int, scheme: str) -> bytes:
    """The bytes of a token."""
    if kind == _UNUSED:
        return b""
    if kind not in (_CONTROL, _USER, _UNKNOWN):
        if scheme == "gpt2":
            return byte_level(text, _AS_READ)
        if kind == _BYTE:
            return sentencepiece(text, _AS_READ)
        text = text.replace(SPACE, " ")
    return text.encode(errors=_AS_READ)


def describe_folder(name: str, folder: Path, tensors: Sequence[StoredTensor]) -> ModelDescription:
    """A model by its JSON files, and by the heads of its weights. Raises BadHead.

    `parameters` of a quantised model are the numbers that its files hold, of which some have several weights.
    """
    try:
        config = read_json(folder / "config.json")
        templates = read_chat_templates(folder)
        tokens = read_tokens(folder) if (folder / "tokenizer.json").is_file() else None
    except ModelLoadError as error:
        raise BadHead(str(error)) from None
    text: dict[str, Any] = config | (config.get("text_config") or {})  # of models that read images, too

    def whole(*keys: str) -> int:
        """The whole number that the configuration has under the first of these keys; 0: it has none of them."""
        return next((each for key in keys if type(each := text.get(key)) is int), 0)

    queries, layers = whole("num_attention_heads"), whole("num_hidden_layers")
    kinds = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(kinds, list):
        layers = sum(not any(word in str(kind) for word in _NO_ATTENTION) for kind in kinds)
    width = whole("head_dim") or whole("hidden_size") // max(1, queries)
    kv_numbers = 2 * layers * (whole("num_key_value_heads") or queries) * width
    count, used = whole(*_EXPERTS), whole(*_EXPERTS_USED)
    window = whole("sliding_window") if text.get("use_sliding_window", True) else 0
    quantization = most_common((_TYPES.get(tensor.kind, tensor.kind), tensor.numbers) for tensor in tensors)
    if stated := config.get("quantization_config") or config.get("quantization"):  # told as `awq, 4 bits`
        bits = stated.get("bits") or stated.get("weight_bits")
        told = filter(None, (str(stated.get("quant_method") or ""), f"{bits} bits" if bits else ""))
        quantization = ", ".join(told) or "?"
    return ModelDescription(
        name=name,
        architecture=str(config.get("model_type") or "unknown"),
        quantization=quantization,
        weight_bytes=sum(tensor.size for tensor in tensors),
        parameters=sum(tensor.numbers for tensor in tensors),
        expert_bytes=sum(tensor.size for tensor in tensors if ".experts." in tensor.name),
        context=whole("max_position_embeddings"),
        kv_numbers=kv_numbers,
        layers=Layers(
            recurrent=any(text.get(key) for key in _STATES),
            attends=bool(kv_numbers),
            experts=(used, count) if used and count else None,
            window=window or None,
        ),
        chat_templates=templates,
        ids=whole("vocab_size") if tokens else 0,
        read_vocabulary=lambda: None if tokens is None else _folder_tokens(tokens, whole("vocab_size")),
    )


def _folder_tokens(stated: StatedTokens, size: int) -> ListedTokens:
    """The tokens as engines for folders read them. Raises BadHead."""
    try:
        content = json.loads(stated.text)
        ids = ids_of(content)
        size = max(size, *ids.values())
        pieces, kinds = listed(content, ids, size)
    except (ModelLoadError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadHead(f"{stated.path.name} is no tokenizer that can be read: {error}") from None
    begin, end = (if_control(token, kinds) for token in (stated.begin, stated.end))
    within = {token for token in stated.ends if 0 <= token < size}
    kind = f"{content['model']['type']} of tokenizer.json"
    ends = frozenset(within | model_files.named_ends(ids))
    return ListedTokens(pieces, kinds, kind, begin=begin, end=end, ends=ends, adds_begin=stated.adds_begin)
