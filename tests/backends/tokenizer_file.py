"""Makes files of model folders in Hugging Face layout."""

from pathlib import Path
from typing import Any

from models.gguf_file import read_gguf
from models.training.corpus import SPLIT_PATTERN


def tokenizer_of(path: Path) -> dict[str, Any]:
    """The tokenizer in a GGUF file, in the layout of tokenizer.json."""
    fields = read_gguf(path).fields
    tokens, merges = fields["tokenizer.ggml.tokens"].value, fields["tokenizer.ggml.merges"].value
    types = fields["tokenizer.ggml.token_type"].value
    control = [at for at, kind in enumerate(types) if kind == 3]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    steps = [
        {"type": "Split", "pattern": {"Regex": SPLIT_PATTERN}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ]
    return {
        "version": "1.0",
        "added_tokens": [{"id": at, "content": tokens[at], "special": True, **plain} for at in control],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE",
            "vocab": {token: at for at, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in merges],
        },
    }
