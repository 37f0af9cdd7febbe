"""The vocabulary of a model folder in Hugging Face layout, read from its `tokenizer.json`.

Its bytes, classes, begin and end ids equal those that llama.cpp reads from a GGUF file of the same model, so that a
drafter on one engine has the fingerprint of a verifier on another.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from backends.hugging_face import token_names
from backends.hugging_face.folder import read_json
from specpair.engines.backend import DEFAULT_TEMPLATE
from specpair.engines.errors import ModelLoadError
from specpair.engines.token_spelling import SPACE, byte_level, sentencepiece
from specpair.engines.vocabulary import Kind, Vocabulary


class HfVocabulary(Vocabulary):
    """Reads each token's bytes and class once; encodes with the library `tokenizers`."""

    def __init__(
        self,
        text: str,
        *,
        size: int,
        begin: int | None,
        ends: frozenset[int],
        end: int | None = None,
        adds_begin: bool | None = None,
    ) -> None:
        """`text`: contents of a tokenizer.json.
        `size`: ids in the embedding table; those without a token are unused.
        `begin`: id of the begin token.
        `ends`: ids of end tokens that the model states; the names of tokens can add others.
        `end`: the one of them that chat templates write.
        `adds_begin`: whether a prompt starts with the begin token; None: as the tokenizer does it, or always if it does
            not say.

        Raises ModelLoadError.
        """
        content = json.loads(text)
        added = {each["id"]: each for each in content.get("added_tokens", ())}
        self._plain = Tokenizer.from_str(text)
        ids: dict[str, int] = self._plain.get_vocab(with_added_tokens=True)
        if begin is not None and not 0 <= begin < size:
            raise ModelLoadError(f"bos_token_id is {begin}, and the model has ids 0 to {size - 1}")
        if max(ids.values()) >= size:
            raise ModelLoadError(f"the tokenizer has ids up to {max(ids.values())}, the model only {size}")
        kinds = _kinds(ids, added, size)
        pieces = [b""] * size
        to_bytes = _piece_reader(content)
        for name, token in ids.items():
            literal = token in added or kinds[token] != Kind.ORDINARY
            pieces[token] = _literal(name, kinds[token]) if literal else to_bytes(name)
        stated = frozenset(token for token in ends if 0 <= token < size)
        super().__init__(pieces, kinds, begin, stated | token_names.ends(ids), end)
        for each in content.get("added_tokens", ()):  # mark our control tokens, which may differ from the tokenizer's
            each["special"] = kinds[each["id"]] != Kind.ORDINARY
        self._plain = Tokenizer.from_str(json.dumps(content))
        self._parsing = Tokenizer.from_str(json.dumps(content))
        self._plain.encode_special_tokens = True  # control tokens spelled out in a text are encoded as text
        self._adds_begin = _adds_begin(self._parsing, content, begin) if adds_begin is None else adds_begin

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        encoder = self._parsing if parse_control else self._plain
        ids: list[int] = encoder.encode(text, add_special_tokens=False).ids
        return [self.begin, *ids] if add_begin and self._adds_begin and self.begin is not None else ids


def read_vocabulary(folder: Path, size: int) -> HfVocabulary:
    """Read the vocabulary of the model in `folder`, whose embedding table has `size` ids. Raises ModelLoadError.

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
    begin = begins[0] if begins else None
    settings = read_json(path.parent / "tokenizer_config.json")
    try:
        text = path.read_text(encoding="utf-8")
        named = _added(text, settings.get("eos_token"))
        return HfVocabulary(
            text,
            size=size,
            begin=begin,
            ends=frozenset(ends),
            end=named if named is not None else ends[0] if ends else None,
            adds_begin=settings.get("add_bos_token"),
        )
    except ModelLoadError as error:
        raise ModelLoadError(f"{path}: {error}") from None
    except Exception as error:  # the library raises plain exceptions
        raise ModelLoadError(f"{path} is no tokenizer that can be read: {error}") from error


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
    """Make the function from an ordinary token's name to its bytes. Raises ModelLoadError for an unsupported type."""
    model = content["model"]
    if model["type"] not in ("BPE", "Unigram"):
        raise ModelLoadError(f"a tokenizer of type {model['type']} has no exact bytes: BPE and Unigram have")
    if "ByteLevel" in _types(content.get("pre_tokenizer")) | _types(content.get("decoder")):
        return byte_level
    return sentencepiece


def _types(part: Any) -> set[str]:
    """The types of all steps of a pre-tokenizer or decoder."""
    if not part:
        return set()
    steps = part.get("pretokenizers", part.get("decoders", ()))
    return {part["type"]}.union(*(_types(step) for step in steps))


def _adds_begin(tokenizer: Any, content: Mapping[str, Any], begin: int | None) -> bool:
    """Whether the tokenizer starts a text with the begin token; true if it has no rule for that."""
    if content.get("post_processor") is None:
        return True
    return begin in tokenizer.encode("a").ids[:1]
