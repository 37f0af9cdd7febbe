"""What tokens are for, by their names: rules of llama.cpp, which both ends have to agree with.

A GGUF file and a `tokenizer.json` do not say all that llama.cpp knows of a token: it recognises many by their text. A
vocabulary read without it follows the same rules here, so that the two prove equal.
"""

from collections.abc import Mapping

_END_OF_TEXT = {
    *("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "<|im_end|>", "<|end|>"),
    *("<end_of_turn>", "<turn|>", "<|tool_response>", "<eos>", "</s>", "<end_of_utterance>"),
    *("<EOT>", "_<EOT>", "[EOT]", "[EOS]", "[e~[", "<｜end▁of▁sentence｜>"),
    *("<|return|>", "<|call|>", "<|calls|>", "<|flush|>"),
}
_AROUND_FILES = {
    *("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    *("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"),
}
_GAPS = {
    *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>"),
    *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>"),
    *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>"),
    *("<|prefix|>", "<|suffix|>", "<|middle|>"),
}
_SHOWN = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}  # text that the reader is to see
_CALLS = (
    {"<|return|>", "<|call|>"},
    {"<|call|>", "<|flush|>"},
    {"<|calls|>", "<|flush|>"},
    {"<|return|>", "<|calls|>"},
)
_ALSO_CONTROL = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"}


def looks_special(name: str) -> bool:
    """Whether an added token is for control although its tokenizer does not say so."""
    around = (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))
    return name in _ALSO_CONTROL or any(name.startswith(left) and name.endswith(right) for left, right in around)


def controls(ids: Mapping[str, int]) -> set[int]:
    """Ids that are for control because of their names, whatever their tokenizer says."""
    named = (_END_OF_TEXT | _AROUND_FILES | _GAPS) - _not_ends(ids)
    return {ids[name] for name in named if name in ids}


def shown(ids: Mapping[str, int]) -> set[int]:
    """Ids that are text because of their names, whatever their tokenizer says."""
    return {ids[name] for name in _SHOWN | _not_ends(ids) if name in ids}


def ends(ids: Mapping[str, int]) -> set[int]:
    """Ids behind which nothing more is to be written, by their names."""
    return {ids[name] for name in (_END_OF_TEXT | _AROUND_FILES) - _not_ends(ids) if name in ids}


def _not_ends(ids: Mapping[str, int]) -> set[str]:
    """Names that end a text elsewhere, but not beside some others."""
    names = set()
    if any(calls <= ids.keys() for calls in _CALLS):
        names.add("<|end|>")
    if ids.keys() & {"<|tool_response>", "<|plamo:eos|>"}:
        names.add("</s>")
    return names
