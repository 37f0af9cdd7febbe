"""Prompts that ask for the middle of a text, where the vocabulary has tokens for that (fill-in-the-middle)."""

from typing import NamedTuple

from specpair.engines.vocabulary import Vocabulary


class _Names(NamedTuple):
    """How one family spells its tokens. `middle`: None: there is none, and what comes before the gap stands last."""

    prefix: str
    suffix: str
    middle: str | None


_FAMILIES = (
    _Names("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma
    _Names("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    _Names("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    _Names("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder  # noqa: RUF001
    _Names("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
    _Names(" <PRE>", " <SUF>", " <MID>"),  # CodeLlama, as llama.cpp reads its file
    _Names("<PRE>", "<SUF>", "<MID>"),
    _Names("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM
    _Names("[PREFIX]", "[SUFFIX]", None),  # Codestral
)


class InfillTokens(NamedTuple):
    """Ids of the tokens before the text that comes before the gap, before the one behind it, and before the middle."""

    prefix: int
    suffix: int
    middle: int | None


def infill_tokens(vocabulary: Vocabulary) -> InfillTokens | None:
    """The tokens of a vocabulary; None: it has none."""
    for family in _FAMILIES:
        prefix, suffix, middle = (None if name is None else vocabulary.token_of(name) for name in family)
        if prefix is not None and suffix is not None and (middle is None) == (family.middle is None):
            return InfillTokens(prefix, suffix, middle)
    return None


def infill_ids(tokens: InfillTokens, vocabulary: Vocabulary, before: str, behind: str) -> list[int]:
    """The prompt for a gap between two texts. Control tokens that they spell out are not read."""
    begin = vocabulary.encode("")  # no token if the model does not start its texts with one
    prefix = [tokens.prefix, *vocabulary.encode(before, add_begin=False)]
    suffix = [tokens.suffix, *vocabulary.encode_after_token(behind)]
    return [*begin, *suffix, *prefix] if tokens.middle is None else [*begin, *prefix, *suffix, tokens.middle]
