"""Reads a file of prompts: one a line, or JSON Lines, where each prompt may have its own settings."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError

from drafter_client.conversation import Messages
from drafter_client.errors import BadOption, BadPromptFile
from drafter_client.options import Options
from gateway.openai_api.messages.conversation import ChatMessage
from specpair.options.option import options_of
from specpair.protocol.terminal_text import is_text, one_line
from specpair.speculation.sampling.processors import token_id

_Types = dict[str, tuple[tuple[type, ...], str]]  # by key
_OTHERS: _Types = {
    "prompt": ((str,), "text"),
    "id": ((str, int), "text or a whole number"),
    "system": ((str,), "text"),
    "messages": ((list,), "a list of messages"),
}
_MEANING = {int: "a whole number", float: "a number", str: "text"}  # of the types of options
# Of each key, the types that its value may have, which are compared, not tested with isinstance: true is no number.
_KEYS: _Types = {
    **_OTHERS,
    **{
        name: (each.types, _MEANING[each.kind])
        for name, each in options_of(Options).items()
        if each.about.group in ("text", "sampling", "grammar") and each.types is not None
    },
    "logit_bias": ((dict,), "an object of token ids and numbers"),
    "prediction": ((str,), "text"),
    "json_schema": ((dict, bool), "an object of JSON, or true"),
    "choice": ((list,), "a list of texts"),
    "stop": ((str, list), "text or a list of texts"),
}
_LONGEST = 60  # characters of an id that messages show
_MESSAGES = TypeAdapter(list[ChatMessage])


@dataclass(frozen=True, slots=True)
class FilePrompt:
    """A prompt of a file, with its settings. `index`: its place among the file's prompts, from 0. `messages`: of a
    conversation, in place of `text`. `chat`: whether a chat template is applied."""

    index: int
    text: str
    options: Options
    id: str | int | None = None
    chat: bool = False
    system: str | None = None
    messages: Messages | None = None

    @property
    def said(self) -> str | Messages:
        return self.text if self.messages is None else self.messages

    @property
    def label(self) -> str:
        """The name of the prompt in messages: it counts the prompts of the file, and has its id if it has one."""
        name = "" if self.id is None else one_line(str(self.id))
        shown = name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
        return f"prompt {self.index + 1}" + ("" if self.id is None else f" ({shown})")


def parse_prompts(
    data: bytes, name: str, defaults: Options, *, chat: bool = False, system: str | None = None
) -> list[FilePrompt]:
    """The prompts in the file called `name`: JSON Lines if it ends in .jsonl, else text, a prompt a line.

    An object has `prompt` or `messages`, and may have the other keys in `_KEYS`. Its options take precedence over
    `defaults`; null counts as missing. Blank lines are skipped. Raises BadPromptFile with the line at fault.
    """
    prompts: list[FilePrompt] = []
    as_json = name.endswith(".jsonl")
    ids: dict[str | int, int] = {}
    for number, line in enumerate(_lines(data, name), 1):
        where = f"{name}, line {number}"
        if not line.strip():
            continue
        given: dict[str, Any] = _object(line, where) if as_json else {"prompt": line}
        settings = {key: value for key, value in given.items() if key not in _OTHERS}
        try:
            options = replace(defaults, **settings)
        except BadOption as error:
            raise BadPromptFile(f"{where}: {error}") from None
        messages, own_id = given.get("messages"), given.get("id")
        if "system" in given and not chat and messages is None:
            raise BadPromptFile(f"{where}: system is a message of a chat: add --chat")
        if own_id is not None and ids.setdefault(own_id, number) != number:
            raise BadPromptFile(f"{where}: the id {own_id!r} is that of line {ids[own_id]}, too")
        is_chat, system_message = chat or messages is not None, given.get("system", system)
        prompt = FilePrompt(len(prompts), given.get("prompt", ""), options, own_id, is_chat, system_message)
        prompts.append(replace(prompt, messages=messages))
    if not prompts:
        raise BadPromptFile(f"{name} is empty: write one prompt a line")
    return prompts


def _lines(data: bytes, name: str) -> Iterator[str]:
    """Yield the lines of a file. They end with a line feed or CRLF; other line separators are text of a prompt."""
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        try:
            yield line.removesuffix(b"\r").decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise BadPromptFile(f"{name}, line {number}: this is not UTF-8 text") from None


def _object(line: str, where: str) -> dict[str, Any]:
    """Parse a line of JSON. Raises BadPromptFile unless each key is known and each value is of the key's type."""

    def refuse(what: str) -> NoReturn:
        raise BadPromptFile(f"{where}: {what}")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        given = dict(pairs)
        if len(given) < len(pairs):
            refuse("a key is given twice")
        return given

    try:
        given = json.loads(line, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        refuse(f"this is not JSON ({error.msg} at column {error.colno})")
    except (ValueError, RecursionError):  # a number of thousands of digits, thousands of brackets
        refuse("this is not JSON that can be read")
    if type(given) is not dict:
        refuse('this is not an object: write {"prompt": "…"}')
    for key, value in given.items():
        if key not in _KEYS:
            refuse(f"{key!r} is no key of a prompt, which are {', '.join(_KEYS)}")
        types, meaning = _KEYS[key]
        if value is not None and type(value) not in types:
            refuse(f"{key} must be {meaning}, got {json.dumps(value)}")
        if isinstance(value, str) and not is_text(value):
            refuse(f"{key} holds half a character (a lone surrogate): this is not text")
    given = {key: value for key, value in given.items() if value is not None}
    if ("prompt" in given) == ("messages" in given):
        refuse("there is no prompt" if "prompt" not in given else "there are messages and a prompt: leave one out")
    if "messages" in given:
        try:
            messages = _MESSAGES.validate_json(json.dumps(given["messages"]))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            path = ".".join(map(str, ("messages", *first["loc"])))
            refuse(f"{path}: {first['msg'].removeprefix('Value error, ')}")
        if not messages:
            refuse("messages is empty: give at least one message")
        given["messages"] = [message.for_template() for message in messages]
    elif not given["prompt"]:
        refuse("the prompt is empty: give at least one character to continue")
    if "logit_bias" in given:
        biases = given["logit_bias"]
        wrong = next((key for key in biases if token_id(key) is None), None)
        if wrong is not None:
            refuse(f"logit_bias names {wrong[:_LONGEST]!r}, which is no token id")
        given["logit_bias"] = {int(key): bias for key, bias in biases.items()}
    return given
