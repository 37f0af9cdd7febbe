"""Makes a model with another vocabulary from an existing one: other ids for the same tokens, or fewer tokens.

The result stands in for a model of another family in tests and measurements: its ids mean other tokens. With fewer
tokens it also tokenizes texts differently than in its training, which is worse than for a real model.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from models.gguf_file import Field, Gguf, read_gguf, write_gguf

_TOKENS = "tokenizer.ggml."


def renumbered(source: Path, destination: Path, *, size: int | None = None) -> None:
    """Write the byte-level model of `source` with its first `size` tokens (None: all) under new ids.

    The ids are drawn. Only the first 258 tokens keep theirs.
    """
    model = read_gguf(source)
    count = len(model.fields[_TOKENS + "tokens"].value)
    first = 258  # begin, end and the bytes, by which every text can be encoded
    others = np.random.default_rng(1).permutation(np.arange(first, size or count)).tolist()
    write_gguf(_with_tokens(model, [*range(first), *others]), destination)


def _with_tokens(model: Gguf, keep: Sequence[int]) -> Gguf:
    """The model with the tokens `keep`: `keep[new]` is a token's old id. Merges that need other tokens are dropped."""
    fields = dict(model.fields)

    def change(name: str, value: list[object]) -> None:
        fields[name] = Field(value, model.fields[name].kind, model.fields[name].item)

    tokens, types = (model.fields[_TOKENS + name].value for name in ("tokens", "token_type"))
    kept = {tokens[old] for old in keep}
    change(_TOKENS + "tokens", [tokens[old] for old in keep])
    change(_TOKENS + "token_type", [types[old] for old in keep])
    merges = [merge.split(" ") for merge in model.fields[_TOKENS + "merges"].value]
    change(_TOKENS + "merges", [" ".join(merge) for merge in merges if {*merge, "".join(merge)} <= kept])
    name = f"{model.architecture}.vocab_size"
    fields[name] = replace(fields[name], value=len(keep))
    rows = np.array(keep)
    tensors = [
        replace(tensor, data=tensor.data[rows]) if len(tensor.data) == len(tokens) else tensor
        for tensor in model.tensors
    ]
    return replace(model, fields=fields, tensors=tensors)
