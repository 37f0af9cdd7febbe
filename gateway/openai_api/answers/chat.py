"""An answer as the message of a chat, and as what is new in one."""

import secrets
import string
from collections.abc import Iterable, Sequence
from typing import Any

from gateway.openai_api.answers.answer import AnswerEvent, Thought
from gateway.openai_api.messages.replies import (
    AssistantMessage,
    CalledFunction,
    CalledTool,
    ChatDelta,
    FunctionDelta,
    ToolDelta,
)
from gateway.openai_api.tools.reader import ArgumentsGrew, CallBegan, CallEnded, Content

_CHARACTERS = string.ascii_letters + string.digits
_ID_LENGTH = 9  # characters: the templates of some models, Mistral's, take no others


def call_id() -> str:
    """Another id for each call."""
    return "".join(secrets.choice(_CHARACTERS) for _ in range(_ID_LENGTH))


def message_of(events: Iterable[AnswerEvent]) -> AssistantMessage:
    """The message. A call that was told in part is not expected."""
    thoughts, content, calls = "", "", list[tuple[str, list[str]]]()
    for event in events:
        match event:
            case Thought(text):
                thoughts += text
            case Content(text):
                content += text
            case CallBegan(_, name):
                calls.append((name, []))
            case ArgumentsGrew(_, text):
                calls[-1][1].append(text)
    called = [
        CalledTool(id=call_id(), type="function", function=CalledFunction(name=name, arguments="".join(arguments)))
        for name, arguments in calls
    ]
    beside: dict[str, Any] = {"reasoning_content": thoughts} if thoughts else {}
    if called:
        beside["tool_calls"] = called
    said = None if called and not content else content
    return AssistantMessage(role="assistant", content=said, refusal=None, **beside)


def deltas_of(events: Sequence[AnswerEvent]) -> list[ChatDelta]:
    """What is new in the message, each part by itself."""
    return [delta for delta in map(_delta, events) if delta is not None]


def _delta(event: AnswerEvent) -> ChatDelta | None:
    match event:
        case Thought(text):
            return ChatDelta(reasoning_content=text)
        case Content(text):
            return ChatDelta(content=text)
        case CallBegan(index, name):
            begun = FunctionDelta(name=name, arguments="")
            return ChatDelta(tool_calls=[ToolDelta(index=index, id=call_id(), type="function", function=begun)])
        case ArgumentsGrew(index, text):
            return ChatDelta(tool_calls=[ToolDelta(index=index, function=FunctionDelta(arguments=text))])
        case CallEnded():
            return None
