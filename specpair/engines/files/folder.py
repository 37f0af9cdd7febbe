"""What a model folder in Hugging Face layout states beside its weights: JSON, token ids, chat templates."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from specpair.engines.backend import DEFAULT_TEMPLATE
from specpair.engines.errors import ModelLoadError


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
