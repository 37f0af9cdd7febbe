"""Token ids of a chat prompt: the target's chat template around messages that cannot forge control tokens."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from backends.vocabulary import Kind, Vocabulary
from openai_api.chat.template import Renderer
from speculation.errors import InvalidRequest, NoChatTemplate

Message = dict[str, Any]  # `role` and `content`, and what else the template knows


class Part(NamedTuple):
    """A part of a prompt. `control`: whether control tokens that it spells out are meant."""

    text: str
    control: bool


def chat_parts(
    template: str,
    vocabulary: Vocabulary,
    messages: Sequence[Message],
    renderer: Renderer,
    variables: Mapping[str, Any] | None = None,
) -> list[Part]:
    """Return a conversation as text, up to where the assistant's answer begins. Nothing is encoded yet.

    If a message spells out a control token, the messages are parts of their own, as plain text, so that they cannot
    forge one. `template`: the target's, in Jinja. `vocabulary`: the target's. `variables`: others for the template.
    Raises NoChatTemplate if the template cannot be rendered, and InvalidRequest for a control token elsewhere than in
    the content of a message.
    """
    messages = [{**message, "content": _text(message.get("content"))} for message in messages]
    spelled = _control_pieces(vocabulary)
    _check_others(messages, variables or {}, spelled)
    if _spelled("\n".join(message["content"] for message in messages), spelled) is None:
        return [Part(_render(template, vocabulary, messages, renderer, variables), True)]
    mark = f"\ue000{secrets.token_hex(8)}."  # replaces a message while the template is rendered; nobody can guess it
    marked = [{**message, "content": f"{mark}{at}\ue001"} for at, message in enumerate(messages)]
    rest = _render(template, vocabulary, marked, renderer, variables)
    parts = []
    for at, message in enumerate(messages):
        before, found, rest = rest.partition(f"{mark}{at}\ue001")
        if not found or mark in before:
            raise _changed(at, message)
        parts += [Part(before, True), Part(message["content"], False)]
    if mark in rest:
        raise _changed(len(messages) - 1, messages[-1])
    return [*parts, Part(rest, True)]


def encode_parts(vocabulary: Vocabulary, parts: Sequence[Part]) -> list[int]:
    """The token ids of a prompt."""
    begin = _piece(vocabulary, vocabulary.begin)
    adds_it = vocabulary.begin is not None and vocabulary.encode("a")[:1] == [vocabulary.begin]
    ids: list[int] = []
    for at, part in enumerate(parts):
        text = part.text.removeprefix(begin) if adds_it and at == 0 else part.text
        ids += vocabulary.encode(text, add_begin=at == 0, parse_control=part.control)
    return ids


def _text(content: str | list[dict[str, str]] | None) -> str:
    """The text of a content: a string, parts, or nothing."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content or ())


def _changed(at: int, message: Message) -> NoChatTemplate:
    return NoChatTemplate(
        f"message {at + 1} or another one spells out a control token, and the chat template does not show the "
        f"{message['role']} message as it is, once"
    )


def _check_others(messages: Sequence[Message], variables: Mapping[str, Any], spelled: Sequence[bytes]) -> None:
    """Raise InvalidRequest for a control token that stands elsewhere than in the content of a message."""
    if (piece := _spelled("\n".join(_strings(variables)), spelled)) is not None:
        where = "chat_template_kwargs"
        raise InvalidRequest(f"{where}: it spells out the control token {piece}", param=where)
    others = [
        "\n".join(_strings({name: value for name, value in message.items() if name != "content"}))
        for message in messages
    ]
    if _spelled("\n".join(others), spelled) is None:
        return
    for at, other in enumerate(others):
        if (piece := _spelled(other, spelled)) is not None:
            raise InvalidRequest(f"messages.{at}: it spells out the control token {piece}", param=f"messages.{at}")


def _strings(value: Any) -> Iterator[str]:
    """The strings in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield name
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def _render(
    template: str,
    vocabulary: Vocabulary,
    messages: Sequence[Message],
    renderer: Renderer,
    variables: Mapping[str, Any] | None,
) -> str:
    return renderer.render(
        template,
        {
            **(variables or {}),
            "messages": list(messages),
            "add_generation_prompt": True,
            "bos_token": _piece(vocabulary, vocabulary.begin),
            "eos_token": _piece(vocabulary, min(vocabulary.ends, default=None)),
        },
    )


def _piece(vocabulary: Vocabulary, token: int | None) -> str:
    return "" if token is None else vocabulary.pieces[token].decode(errors="replace")


def _spelled(text: str, pieces: Sequence[bytes]) -> str | None:
    """The first of `pieces` that `text` spells out."""
    data = text.encode(errors="replace")
    return next((piece.decode(errors="replace") for piece in pieces if piece in data), None)


@lru_cache(maxsize=8)
def _control_pieces(vocabulary: Vocabulary) -> tuple[bytes, ...]:
    """The spellings of the control tokens. Kept, since a vocabulary has a hundred thousand ids."""
    pieces = zip(vocabulary.pieces, vocabulary.kinds, strict=True)
    return tuple(piece for piece, kind in pieces if kind == Kind.CONTROL and piece)
