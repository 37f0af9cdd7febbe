"""The parts of a chat prompt: the target's chat template around messages that cannot forge control tokens."""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.openai_api.chat.forms import Message
from gateway.openai_api.chat.marks import Marks
from gateway.openai_api.chat.template import Renderer
from specpair.engines.vocabulary import PromptSpan, Vocabulary
from specpair.protocol.errors import InvalidRequest

_SYSTEM_BEHIND = "the role 'system' is not supported behind other messages"


def chat_parts(
    template: str,
    vocabulary: Vocabulary,
    messages: Sequence[Message],
    renderer: Renderer,
    variables: Mapping[str, Any] | None = None,
    *,
    calls: bool = True,
) -> list[PromptSpan]:
    """Return a conversation as text, up to where the assistant's answer begins. Nothing is encoded yet.

    Control tokens that messages spell out stand in parts that are plain text, so that they cannot forge one.
    `template`: the target's, in Jinja.
    `vocabulary`: the target's.
    `variables`: others for the template.
    `calls`: whether tools that are among these may be called.

    Raises NoChatTemplate if the template cannot be rendered, and InvalidRequest if it refuses the messages or does not
    show tools that may be called, or the content of a message.
    """
    ours = {
        "add_generation_prompt": True,
        "bos_token": vocabulary.spelled(vocabulary.begin),
        "eos_token": vocabulary.spelled(vocabulary.end),
    }
    forms = renderer.forms(template)
    if calls and (variables or {}).get("tools") and not forms.shows_tools:
        raise InvalidRequest(
            "tools: the chat template of this model does not show any, so that it cannot call them: leave them out, or "
            "serve a model that calls tools",
            param="tools",
        )
    given = {**(variables or {}), "messages": forms.fitted(messages)}
    text = _rendered(template, given | ours, renderer)
    _check_shown(template, given | ours, renderer)
    marks = Marks(vocabulary)
    if (marked := marks.marked(given)) != given:
        text = marks.moved(renderer.render(template, marked | ours), text)
    return marks.parts(text)


def _rendered(template: str, variables: Mapping[str, Any], renderer: Renderer) -> str:
    """The rendered template. If it refuses a system message behind others, the error says so: then Claude Code says it
    in a message of the user's."""
    try:
        return renderer.render(template, {**variables})
    except InvalidRequest as error:
        messages: list[Message] = variables["messages"]
        others = [each for at, each in enumerate(messages) if at == 0 or each["role"] != "system"]
        if len(others) == len(messages) or renderer.attempt(template, {**variables, "messages": others}) is None:
            raise
        raise InvalidRequest(f"{error.message}; {_SYSTEM_BEHIND}", param="messages") from None


def _check_shown(template: str, variables: Mapping[str, Any], renderer: Renderer) -> None:
    """Raise InvalidRequest if the template does not show the content of a message.

    A template may trim a content, escape it or leave its thoughts out. So it is rendered again, with a number at the
    end of each content, which nobody can guess and which has to be shown.
    """
    messages: list[Message] = variables["messages"]
    secret = f"3{secrets.randbelow(10**18):018}"
    owners: list[int] = []  # of the numbers

    def numbered(content: Any, at: int) -> Any:
        if isinstance(content, list):
            return [part | {"text": numbered(part["text"], at)} for part in content]
        if not content or content.isspace():
            return content
        owners.append(at)
        kept = content.rstrip()
        return f"{kept}{secret}{len(owners) - 1:08}{content[len(kept) :]}"

    said = [message | {"content": numbered(message["content"], at)} for at, message in enumerate(messages)]
    text = renderer.attempt(template, {**variables, "messages": said})
    if text is None:  # it takes certain contents only, and has shown them
        return
    shown = {int(number) for number in re.findall(secret + r"(\d{8})", text)}
    if (lost := next((at for number, at in enumerate(owners) if number not in shown), None)) is not None:
        role = messages[lost]["role"]
        behind = f"; {_SYSTEM_BEHIND}" if role == "system" and lost > 0 else ""
        raise InvalidRequest(
            f"messages.{lost}: the chat template of this model does not show the content of this {role} message: leave "
            f"it out, or say it in another message{behind}",
            param=f"messages.{lost}",
        )
