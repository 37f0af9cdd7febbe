"""The vocabulary of a model folder in Hugging Face layout, read from its `tokenizer.json`.

Its bytes, classes, begin and end ids equal those that llama.cpp reads from a GGUF file of the same model, so that a
drafter on one engine has the fingerprint of a verifier on another.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from specpair.engines.errors import ModelLoadError
from specpair.engines.model_files import listed, named_ends, read_tokens
from specpair.engines.vocabulary import Kind, Vocabulary


class HfVocabulary(Vocabulary):
    """Reads each token's bytes and class once; encodes with the library `tokenizers`."""

    def __init__(
        self,
        text: str,
        *,
        size: int,
        begin: int | None,
        ends: frozenset[int],
        end: int | None = None,
        adds_begin: bool | None = None,
    ) -> None:
        """`text`: contents of a tokenizer.json.
        `size`: ids in the embedding table; those without a token are unused.
        `begin`: id of the begin token.
        `ends`: ids of end tokens that the model states; the names of tokens can add others.
        `end`: the one of them that chat templates write.
        `adds_begin`: whether a prompt starts with the begin token; None: as the tokenizer does it, or always if it does
            not say.

        Raises ModelLoadError.
        """
        content = json.loads(text)
        self._plain = Tokenizer.from_str(text)
        ids: dict[str, int] = self._plain.get_vocab(with_added_tokens=True)
        if begin is not None and not 0 <= begin < size:
            raise ModelLoadError(f"bos_token_id is {begin}, and the model has ids 0 to {size - 1}")
        if max(ids.values()) >= size:
            raise ModelLoadError(f"the tokenizer has ids up to {max(ids.values())}, the model only {size}")
        pieces, kinds = listed(content, ids, size)
        stated = frozenset(token for token in ends if 0 <= token < size)
        super().__init__(pieces, kinds, begin, stated | named_ends(ids), end)
        for each in content.get("added_tokens", ()):  # mark our control tokens, which may differ from the tokenizer's
            each["special"] = kinds[each["id"]] != Kind.ORDINARY
        self._plain = Tokenizer.from_str(json.dumps(content))
        self._parsing = Tokenizer.from_str(json.dumps(content))
        self._plain.encode_special_tokens = True  # control tokens spelled out in a text are encoded as text
        self._adds_begin = _adds_begin(self._parsing, content, begin) if adds_begin is None else adds_begin

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        encoder = self._parsing if parse_control else self._plain
        ids: list[int] = encoder.encode(text, add_special_tokens=False).ids
        return [self.begin, *ids] if add_begin and self._adds_begin and self.begin is not None else ids


def read_vocabulary(folder: Path, size: int) -> HfVocabulary:
    """Read the vocabulary of the model in `folder`, whose embedding table has `size` ids. Raises ModelLoadError.

    `tokenizer.json` may be in the folder or, where a model pair shares it, in the folder's parent.
    """
    stated = read_tokens(folder)
    try:
        return HfVocabulary(
            stated.text,
            size=size,
            begin=stated.begin,
            ends=stated.ends,
            end=stated.end,
            adds_begin=stated.adds_begin,
        )
    except ModelLoadError as error:
        raise ModelLoadError(f"{stated.path}: {error}") from None
    except Exception as error:  # the library raises plain exceptions
        raise ModelLoadError(f"{stated.path} is no tokenizer that can be read: {error}") from error


def _adds_begin(tokenizer: Any, content: Mapping[str, Any], begin: int | None) -> bool:
    """Whether the tokenizer starts a text with the begin token; true if it has no rule for that."""
    if content.get("post_processor") is None:
        return True
    return begin in tokenizer.encode("a").ids[:1]
