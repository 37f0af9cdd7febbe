"""The vocabulary: trains a byte-level BPE that splits text as Llama 3 does.

Needs the ``tokenizers`` package. The split pattern is Llama 3's because a GGUF file stores only the name of a pattern,
and every llama.cpp knows that one.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from models.huggingface import SPLIT_PATTERN

BEGIN, END = "<|begin_of_text|>", "<|end_of_text|>"
BEGIN_ID: Final = 0
END_ID: Final = 1


def train_tokenizer(texts: Sequence[str], size: int) -> Tokenizer:
    """Train a tokenizer of at most ``size`` ids: begin, end, the 256 bytes, then merges by frequency (Sennrich et al.,
    2016)."""
    # ignore_merges: a word with an id of its own is encoded as that id, as in llama.cpp with this pattern.
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode_all(tokenizer: Tokenizer, texts: Iterable[str]) -> NDArray[np.uint16]:
    """The concatenated ids of all texts, each wrapped in begin and end."""
    parts = [[BEGIN_ID, *tokenizer.encode(text, add_special_tokens=False).ids, END_ID] for text in texts]
    return np.concatenate([np.asarray(part, dtype=np.uint16) for part in parts])
