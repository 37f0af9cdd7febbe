"""A vocabulary for llguidance: the bytes of each token, and the tokenization of bytes that a grammar forces."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

from llguidance import LLTokenizer, TokenizerWrapper

from specpair.engines.vocabulary import Kind, Vocabulary


class TokenTable(NamedTuple):
    """The tokens of a vocabulary. Unused ones are empty."""

    tokens: list[bytes]
    control: list[int]
    begin: int | None
    ends: list[int]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Self:
        kinds = vocabulary.kinds
        return cls(
            [b"" if kind == Kind.UNUSED else piece for piece, kind in zip(vocabulary.pieces, kinds, strict=True)],
            [token for token, kind in enumerate(kinds) if kind == Kind.CONTROL],
            vocabulary.begin,
            sorted(vocabulary.ends),
        )

    @property
    def json(self) -> list[Any]:
        return [[token.decode("latin-1") for token in self.tokens], *self[1:]]

    @classmethod
    def of_json(cls, given: list[Any]) -> Self:
        tokens, *others = given
        return cls([token.encode("latin-1") for token in tokens], *others)


def tokenizer_of(vocabulary: Vocabulary) -> LLTokenizer:
    """The tokenizer of a vocabulary. It takes half a second for 150,000 ids, in which no other thread runs."""
    return tokenizer_of_table(
        TokenTable.of(vocabulary), vocabulary.encode_after_token if vocabulary.encodes_here else None
    )


def tokenizer_of_table(table: TokenTable, encode: Callable[[str], list[int]] | None = None) -> LLTokenizer:
    """The tokenizer of these tokens.

    `encode`: the ids of a text in the middle of another one; None: the bytes of a text become the longest tokens.
    """
    tokens = _Tokens(table, encode)
    made = LLTokenizer(TokenizerWrapper(tokens), n_vocab=len(table.tokens), eos_token=table.ends)
    tokens.made = made
    return made


class _Tokens:
    """The tokenizer interface that `TokenizerWrapper` expects."""

    def __init__(self, table: TokenTable, encode: Callable[[str], list[int]] | None) -> None:
        self.tokens, self.special_token_ids, self.bos_token_id, ends = table
        self.eos_token_id = ends[0]
        self.made: LLTokenizer | None = None
        self._encode = encode

    def __call__(self, text: bytes | str) -> list[int]:
        """The tokens of a text in the middle of another text. Raises UnicodeDecodeError for bytes that are no text."""
        plain = text.decode() if isinstance(text, bytes) else text
        if self._encode is not None:
            return self._encode(plain)
        return [] if self.made is None else self.made.greedy_tokenize(plain)
