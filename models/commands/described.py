"""What the files of a model say of it: what it is, how large, what its tokens are. Nothing is loaded."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from specpair.engines.vocabulary import Kind, hashes


class Described(ABC):
    """A model in a GGUF file or in a folder of safetensors."""

    name: str
    weight_bytes: int  # of all files
    quantization: str  # the type of most weights, as tags name it; a question mark where the files do not say
    architecture: str

    @property
    @abstractmethod
    def parameters(self) -> int:
        """How many numbers the weights are."""

    @property
    @abstractmethod
    def bytes_a_token(self) -> int:
        """Bytes of weights that a pass over one token reads: of a mixture of experts, those of the chosen ones."""

    @property
    @abstractmethod
    def context(self) -> int:
        """Tokens of context that it was trained for; 0: the files do not say."""

    @property
    @abstractmethod
    def kv_numbers(self) -> int:
        """Numbers in the KV cache for one token."""

    @property
    @abstractmethod
    def layers(self) -> "Layers":
        """What its layers are."""

    @property
    @abstractmethod
    def chat_templates(self) -> Mapping[str, str]:
        """By name."""

    @property
    @abstractmethod
    def ids(self) -> int:
        """How many tokens it has; 0: the files have no tokenizer."""

    @property
    @abstractmethod
    def vocabulary(self) -> "ListedTokens | None":
        """None: the files have no tokenizer."""

    @property
    def kind(self) -> str:
        """What its layers are, in words."""
        return self.layers.words


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
