"""How Llama 3's tokenizer splits a text."""

from typing import Final

# Llama 3's split pattern. llama.cpp has it built in under the name "llama-bpe"; a GGUF file stores only the name.
SPLIT_PATTERN: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
