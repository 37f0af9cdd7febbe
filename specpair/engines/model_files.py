"""Reads tokenizer, ids and chat templates of a model folder in Hugging Face layout, without a model library.

That is JSON, chat templates, token ids, and the tokens that a `tokenizer.json` lists, in the classes in which llama.cpp
has those of the same model. llama.cpp recognises many special tokens by their text alone, because GGUF files and
`tokenizer.json` do not mark them all. The same rules here give both equal fingerprints.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from specpair.engines.backend import DEFAULT_TEMPLATE
from specpair.engines.errors import ModelLoadError
from specpair.engines.vocabulary import Kind


class StatedTokens(NamedTuple):
    """A folder's tokenizer.json, and the ids that the files beside it state."""

    path: Path
    text: str  # of tokenizer.json
    begin: int | None
    ends: frozenset[int]
    end: int | None  # the one of `ends` that chat templates write
    adds_begin: bool | None  # None: the files leave it to the tokenizer


def read_tokens(folder: Path) -> StatedTokens:
    """Read a folder's tokenizer and its ids. Raises ModelLoadError.

    `tokenizer.json` may be in the folder or, where a model pair shares it, in the folder's parent.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        path = folder.resolve().parent / "tokenizer.json"
    if not path.is_file():
        raise ModelLoadError(
            f"{folder} has no tokenizer.json: with transformers, AutoTokenizer.from_pretrained(folder)"
            ".save_pretrained(folder) writes one"
        )
    config, generation = read_json(folder / "config.json"), read_json(folder / "generation_config.json")
    files = (("config.json", config), ("generation_config.json", generation))
    begins, ends = (
        [token for file, content in files for token in _ids(f"{folder / file}: {field}", content.get(field))]
        for field in ("bos_token_id", "eos_token_id")
    )
    settings = read_json(path.parent / "tokenizer_config.json")
    try:
        text = path.read_text(encoding="utf-8")
        named = _added(text, settings.get("eos_token"))
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ModelLoadError(f"{path} is no tokenizer that can be read: {error}") from error
    end = named if named is not None else ends[0] if ends else None
    begin = begins[0] if begins else None
    return StatedTokens(path, text, begin, frozenset(ends), end, settings.get("add_bos_token"))


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in `path`; empty if there is no such file. Raises ModelLoadError for a bad file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path} is no readable JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelLoadError(f"{path} holds no JSON object")
    return content


def read_chat_templates(folder: Path) -> dict[str, str]:
    """The chat templates of the model in `folder`, by name. Raises ModelLoadError."""
    stated = read_json(folder / "tokenizer_config.json").get("chat_template")
    listed = stated if isinstance(stated, list) else [{"name": DEFAULT_TEMPLATE, "template": stated}]
    named = {each.get("name"): each.get("template") for each in listed if isinstance(each, dict)}
    found = {name: each for name, each in named.items() if isinstance(name, str) and isinstance(each, str)}
    further = sorted((folder / "additional_chat_templates").glob("*.jinja"))
    found |= {file.stem: _read(file) for file in further}
    beside = folder / "chat_template.jinja"
    return found | ({DEFAULT_TEMPLATE: _read(beside)} if beside.is_file() else {})


def _read(template: Path) -> str:
    try:
        return template.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelLoadError(f"{template} cannot be read: {error}") from None


def _ids(field: str, stated: object) -> list[int]:
    """The ids that the entry `field` states: one, several or none. Raises ModelLoadError for a value that is no id."""
    ids: list[Any] = stated if isinstance(stated, list) else [] if stated is None else [stated]
    if not all(isinstance(each, int) for each in ids):
        raise ModelLoadError(f"{field} is {json.dumps(stated)}: a token id, or a list of ids, is expected there")
    return ids


def _added(text: str, named: object) -> int | None:
    """The id of the added token that a tokenizer's setting names, by its text or by its description."""
    name = named.get("content") if isinstance(named, dict) else named
    tokens = json.loads(text).get("added_tokens", ())
    return next((each["id"] for each in tokens if each["content"] == name), None)


SPACE = "▁"  # how SentencePiece writes a space
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


_PRINTABLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_OTHERS = sorted({*range(256)} - {*_PRINTABLE})
# The byte of each character: a printable byte is itself, others are chr(256) and on.
BYTE_LEVEL = {chr(byte): bytes([byte]) for byte in _PRINTABLE}
BYTE_LEVEL |= {chr(256 + at): bytes([byte]) for at, byte in enumerate(_OTHERS)}


def byte_level(name: str, errors: str = "strict") -> bytes:
    """The bytes of a token of byte-level BPE. `errors`: as `str.encode` has it."""
    return b"".join(BYTE_LEVEL.get(char) or char.encode(errors=errors) for char in name)


def sentencepiece(name: str, errors: str = "strict") -> bytes:
    """The bytes of a token of SentencePiece, of which some are called `<0x0A>`. `errors`: as `str.encode` has it."""
    byte = _BYTE.fullmatch(name)
    return bytes.fromhex(byte[1]) if byte else name.replace(SPACE, " ").encode(errors=errors)


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


def named_ends(ids: Mapping[str, int]) -> set[int]:
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


def ids_of(content: Mapping[str, Any]) -> dict[str, int]:
    """All ids by name. Raises ModelLoadError for a type of tokenizer that has none."""
    _check(content)
    model = content["model"]["vocab"]
    named = model if isinstance(model, dict) else {name: at for at, (name, _) in enumerate(model)}
    return named | {each["content"]: each["id"] for each in content.get("added_tokens", ())}


def listed(content: Mapping[str, Any], ids: Mapping[str, int], size: int) -> tuple[list[bytes], list[Kind]]:
    """Bytes and class of each of `size` ids. Raises ModelLoadError for a type of tokenizer without exact bytes.

    `content`: the file's.
    `ids`: all ids by name.
    """
    _check(content)
    added = {each["id"]: each for each in content.get("added_tokens", ())}
    kinds, pieces = _kinds(ids, added, size), [b""] * size
    steps = _types(content.get("pre_tokenizer")) | _types(content.get("decoder"))
    to_bytes = byte_level if "ByteLevel" in steps else sentencepiece
    for name, token in ids.items():
        if kinds[token] != Kind.ORDINARY:
            pieces[token] = name.encode()
        else:  # the name of an added token is its text
            pieces[token] = name.replace(SPACE, " ").encode() if token in added else to_bytes(name)
    return pieces, kinds


def _check(content: Mapping[str, Any]) -> None:
    kind = content["model"]["type"]
    if kind not in ("BPE", "Unigram"):
        raise ModelLoadError(f"a tokenizer of type {kind} has no exact bytes: BPE and Unigram have")


def _kinds(ids: Mapping[str, int], added: Mapping[int, Mapping[str, Any]], size: int) -> list[Kind]:
    """The class of each of `size` ids.

    `ids`: ids by name.
    `added`: the tokenizer's added tokens, by id.
    """
    kinds = [Kind.UNUSED] * size
    control, text = controls(ids), shown(ids)
    for name, token in ids.items():
        special = token in added and (added[token]["special"] or looks_special(name))
        if token in text or not (special or token in control):
            kinds[token] = Kind.ORDINARY
        else:
            kinds[token] = Kind.UNUSED if "unused" in name else Kind.CONTROL
    return kinds


def _types(part: Any) -> set[str]:
    """The types of all steps of a pre-tokenizer or decoder."""
    if not part:
        return set()
    steps = part.get("pretokenizers", part.get("decoders", ()))
    return {part["type"]}.union(*(_types(step) for step in steps))
