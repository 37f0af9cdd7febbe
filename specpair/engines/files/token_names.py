"""Classes of special tokens by their names, by the same rules as in llama.cpp.

llama.cpp recognises many special tokens by their text alone, because GGUF files and `tokenizer.json` do not mark them
all. Vocabularies that are read without llama.cpp follow the same rules here, so that both have equal fingerprints.
"""

from collections.abc import Mapping

_END_OF_TEXT = {
    *("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "<|im_end|>", "<|end|>"),
    *("<end_of_turn>", "<turn|>", "<|tool_response>", "<eos>", "</s>", "<end_of_utterance>"),
    *("<EOT>", "_<EOT>", "[EOT]", "[EOS]", "[e~[", "<｜end▁of▁sentence｜>"),
    *("<|return|>", "<|call|>", "<|calls|>", "<|flush|>"),
}
_AROUND_FILES = {  # padding, and borders of files and repositories in code models: these end a text, too
    *("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    *("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"),
}
_GAPS = {  # fill-in-the-middle tokens of code models
    *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>"),
    *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>"),
    *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>"),
    *("<|prefix|>", "<|suffix|>", "<|middle|>"),
}
_SHOWN = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}  # shown as text to the reader
_CALLS = (  # with all tokens of one of these sets, a vocabulary's <|end|> ends a message, not the text
    {"<|return|>", "<|call|>"},
    {"<|call|>", "<|flush|>"},
    {"<|calls|>", "<|flush|>"},
    {"<|return|>", "<|calls|>"},
)
_ALSO_CONTROL = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"}


def looks_special(name: str) -> bool:
    """Whether an added token of this name is a control token, even where its tokenizer does not mark it as special."""
    around = (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))
    return name in _ALSO_CONTROL or any(name.startswith(left) and name.endswith(right) for left, right in around)


def controls(ids: Mapping[str, int]) -> set[int]:
    """The ids that are control tokens by their names, whatever their tokenizer says. `ids`: all ids by name."""
    named = (_END_OF_TEXT | _AROUND_FILES | _GAPS) - _not_ends(ids)
    return {ids[name] for name in named if name in ids}


def shown(ids: Mapping[str, int]) -> set[int]:
    """The ids that are text by their names, whatever their tokenizer says. `ids`: all ids by name."""
    return {ids[name] for name in _SHOWN | _not_ends(ids) if name in ids}


def ends(ids: Mapping[str, int]) -> set[int]:
    """The ids that end a text by their names. `ids`: all ids by name."""
    return {ids[name] for name in (_END_OF_TEXT | _AROUND_FILES) - _not_ends(ids) if name in ids}


def _not_ends(ids: Mapping[str, int]) -> set[str]:
    """Names of end tokens of other vocabularies that end no text in this one, because of its other tokens."""
    names = set()
    if any(calls <= ids.keys() for calls in _CALLS):
        names.add("<|end|>")
    if ids.keys() & {"<|tool_response>", "<|plamo:eos|>"}:
        names.add("</s>")
    return names
