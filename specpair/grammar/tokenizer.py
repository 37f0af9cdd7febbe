"""A vocabulary as llguidance needs it: the bytes of each token, and how bytes that a grammar forces become tokens."""

from llguidance import LLTokenizer, TokenizerWrapper

from specpair.engines.vocabulary import Kind, Vocabulary


def tokenizer_of(vocabulary: Vocabulary) -> LLTokenizer:
    """The tokenizer of a vocabulary. It takes half a second for 150,000 ids, in which no other thread runs."""
    ends, tokens = sorted(vocabulary.ends), _Tokens(vocabulary)
    made = LLTokenizer(TokenizerWrapper(tokens), n_vocab=vocabulary.size, eos_token=ends)
    tokens.made = made
    return made


class _Tokens:
    """What `TokenizerWrapper` asks of a tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        kinds = vocabulary.kinds
        self.tokens = [
            b"" if kind == Kind.UNUSED else piece for piece, kind in zip(vocabulary.pieces, kinds, strict=True)
        ]
        self.special_token_ids = [token for token, kind in enumerate(kinds) if kind == Kind.CONTROL]
        self.eos_token_id, self.bos_token_id = min(vocabulary.ends), vocabulary.begin
        self.made: LLTokenizer | None = None
        self._vocabulary = vocabulary

    def __call__(self, text: bytes | str) -> list[int]:
        """The tokens of a text in the middle of another one. Raises UnicodeDecodeError for bytes that are no text."""
        plain = text.decode() if isinstance(text, bytes) else text
        if self._vocabulary.encodes_here:
            return self._vocabulary.encode_after_token(plain)
        return [] if self.made is None else self.made.greedy_tokenize(plain)
