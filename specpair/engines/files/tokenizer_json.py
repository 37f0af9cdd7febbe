"""The tokens that a `tokenizer.json` lists, in the classes in which llama.cpp has those of the same model."""

from collections.abc import Callable, Mapping
from typing import Any

from specpair.engines.errors import ModelLoadError
from specpair.engines.files import token_names
from specpair.engines.token_spelling import SPACE, byte_level, sentencepiece
from specpair.engines.vocabulary import Kind


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
    kinds, pieces, to_bytes = _kinds(ids, added, size), [b""] * size, _piece_reader(content)
    for name, token in ids.items():
        literal = token in added or kinds[token] != Kind.ORDINARY
        pieces[token] = _literal(name, kinds[token]) if literal else to_bytes(name)
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
    control, shown = token_names.controls(ids), token_names.shown(ids)
    for name, token in ids.items():
        special = token in added and (added[token]["special"] or token_names.looks_special(name))
        if token in shown or not (special or token in control):
            kinds[token] = Kind.ORDINARY
        else:
            kinds[token] = Kind.UNUSED if "unused" in name else Kind.CONTROL
    return kinds


def _literal(name: str, kind: Kind) -> bytes:
    """The bytes of an added or control token, whose name is its literal text."""
    return (name.replace(SPACE, " ") if kind == Kind.ORDINARY else name).encode()


def _piece_reader(content: Mapping[str, Any]) -> Callable[[str], bytes]:
    """The function from an ordinary token's name to its bytes."""
    if "ByteLevel" in _types(content.get("pre_tokenizer")) | _types(content.get("decoder")):
        return byte_level
    return sentencepiece


def _types(part: Any) -> set[str]:
    """The types of all steps of a pre-tokenizer or decoder."""
    if not part:
        return set()
    steps = part.get("pretokenizers", part.get("decoders", ()))
    return {part["type"]}.union(*(_types(step) for step in steps))
