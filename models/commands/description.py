"""What the files of a model say of it, and whether two models make a pair. Nothing is loaded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from specpair.engines.vocabulary import Kind, hashes


@dataclass(frozen=True)
class Layers:
    """What a model's layers are. `experts`: how many a token takes, of how many; `window`: tokens."""

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
        """The hash of its text tokens, as verifiers tell it."""
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
    kv_numbers: int  # in the KV cache for one token
    layers: Layers
    chat_templates: Mapping[str, str]  # by name
    ids: int  # tokens that it has; 0: the files have no tokenizer
    read_vocabulary: Callable[[], ListedTokens | None]  # takes a second; may raise BadHead

    @cached_property
    def vocabulary(self) -> ListedTokens | None:
        """None: the files have no tokenizer. Raises BadHead."""
        return self.read_vocabulary()

    @property
    def bytes_a_token(self) -> int:
        """Bytes of weights that a pass over one token reads: of a mixture of experts, those of the chosen ones."""
        if self.layers.experts is None:
            return self.weight_bytes
        used, count = self.layers.experts
        return self.weight_bytes - self.expert_bytes * (count - used) // count


def most_common(numbers_of: Iterable[tuple[str, int]]) -> str:
    """The type that most numbers have. `numbers_of`: the type of each tensor, and how many numbers it has."""
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
    """Why ids of the one are not those of the other; the rule is that of `engines.vocabulary.cannot_draft`."""
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
