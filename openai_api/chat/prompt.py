"""Token ids of a chat prompt: the target's chat template around messages that cannot forge control tokens."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from backends.vocabulary import Kind, Vocabulary
from openai_api.chat.template import Renderer
from speculation.errors import InvalidRequest, NoChatTemplate

Message = dict[str, Any]  # `role` and `content`, and what else the template knows
_MARK = "\ue000{}\ue001"  # private-use characters that replace a message while the template is rendered


def chat_ids(
    template: str,
    vocabulary: Vocabulary,
    messages: Sequence[Message],
    renderer: Renderer,
    variables: dict[str, Any] | None = None,
) -> list[int]:
    """Return the token ids of a conversation, up to where the assistant's answer begins.

    If a message spells out a control token, the messages are encoded separately, as plain text, so that they cannot
    forge one. `template`: the target's, in Jinja. `vocabulary`: the target's. `variables`: others for the template.
    Raises NoChatTemplate if the template cannot be rendered, and InvalidRequest for a control token elsewhere in a
    message than in its content.
    """
    spelled = _control_pieces(vocabulary)
    for at, message in enumerate(messages):
        others = json.dumps([message[key] for key in message if key != "content"], ensure_ascii=False)
        if (piece := _spelled(others, spelled)) is not None:
            raise InvalidRequest(f"messages.{at}: it spells out the control token {piece}", param=f"messages.{at}")
    if all(_spelled(message["content"], spelled) is None for message in messages):
        return vocabulary.encode(_render(template, vocabulary, messages, renderer, variables), parse_control=True)
    marked = [{**message, "content": _MARK.format(at)} for at, message in enumerate(messages)]
    rest = _render(template, vocabulary, marked, renderer, variables)
    ids: list[int] = []
    for at, message in enumerate(messages):
        before, found, rest = rest.partition(_MARK.format(at))
        if not found:
            raise NoChatTemplate(
                f"message {at + 1} or another one spells out a control token, and the chat template does not show the "
                f"{message['role']} message as it is"
            )
        ids += vocabulary.encode(before, add_begin=at == 0, parse_control=True)
        ids += vocabulary.encode(message["content"], add_begin=False)
    return ids + vocabulary.encode(rest, add_begin=False, parse_control=True)


def _render(
    template: str,
    vocabulary: Vocabulary,
    messages: Sequence[Message],
    renderer: Renderer,
    variables: dict[str, Any] | None,
) -> str:
    begin = _piece(vocabulary, vocabulary.begin)
    text = renderer.render(
        template,
        {
            **(variables or {}),
            "messages": list(messages),
            "add_generation_prompt": True,
            "bos_token": begin,
            "eos_token": _piece(vocabulary, min(vocabulary.ends, default=None)),
        },
    )
    encoding_adds_it = vocabulary.begin is not None and vocabulary.encode("a")[:1] == [vocabulary.begin]
    return text.removeprefix(begin) if encoding_adds_it else text


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
