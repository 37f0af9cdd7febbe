"""What the indexing process needs of a vocabulary: the bytes of its text tokens, in a file.

It encodes by byte pairs, since that needs no model and no verifier, to which a text of the user's is never sent. About
one token in 1,500 differs from what the model's own tokenizer makes; there, a draft is worse.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from specpair.drafters.byte_pairs import BytePairs
from specpair.engines.vocabulary import Kind, Vocabulary
from specpair.shared_files import replacing

_REMEMBERED = 1 << 18  # words


def write(vocabulary: Vocabulary, path: Path) -> None:
    """Write the text tokens of a vocabulary, unless the file is there. Raises OSError."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = zip(vocabulary.pieces, vocabulary.kinds, strict=True)
    pieces = [piece.decode("latin-1") if kind is Kind.ORDINARY else "" for piece, kind in kinds]
    with replacing(path) as file:
        file.write(json.dumps(pieces).encode())


def read_encoder(path: Path) -> Callable[[str], Sequence[int]]:
    """What encodes texts for the vocabulary. Raises OSError and ValueError."""
    pieces = [piece.encode("latin-1") for piece in json.loads(path.read_bytes())]
    return BytePairs(dict(enumerate(pieces)), _REMEMBERED).encode
