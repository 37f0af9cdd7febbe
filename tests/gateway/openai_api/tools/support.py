"""Reads a text in parts, and joins the events."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from gateway.openai_api.answer import AnswerForm, AnswerReader
from gateway.openai_api.tools.reader import (
    AnswerEvent,
    ArgumentsGrew,
    CallBegan,
    CallEnded,
    CallReader,
    Content,
    Event,
    Thought,
    Tools,
)
from gateway.openai_api.tools.styles import NOTATIONS, Style


@dataclass
class Call:
    """`whole`: None until it has ended."""

    name: str
    arguments: str = ""
    whole: bool | None = None


@dataclass
class Said:
    """What a text held."""

    content: str = ""
    calls: list[Call] = field(default_factory=list)
    thoughts: str = ""


def joined(events: Iterable[AnswerEvent]) -> Said:
    """What events say together. Fails where their order or their indices are wrong."""
    said = Said()
    for event in events:
        match event:
            case Content(text):
                assert text and all(call.whole is not None for call in said.calls)
                said.content += text
            case Thought(text):
                assert text
                said.thoughts += text
            case CallBegan(index, name):
                assert index == len(said.calls) and all(call.whole is not None for call in said.calls)
                said.calls.append(Call(name))
            case ArgumentsGrew(index, text):
                assert text and index == len(said.calls) - 1 and said.calls[index].whole is None
                said.calls[index].arguments += text
            case CallEnded(index, whole):
                assert index == len(said.calls) - 1 and said.calls[index].whole is None
                said.calls[index].whole = whole
    assert all(call.whole is not None for call in said.calls)
    return said


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    """A text in pieces. `cuts`: where they end."""
    return [text[begin:end] for begin, end in pairwise([0, *sorted(min(cut, len(text)) for cut in cuts), len(text)])]


def read(style: Style, tools: Tools, text: str, cuts: Sequence[int] = (), *, whole: bool = False) -> Said:
    """What a text says that is fed in parts. `cuts`: where they end."""
    reader, events = CallReader(NOTATIONS[style], tools, whole=whole), list[Event]()
    for piece in pieces(text, cuts):
        events += reader.feed(piece)
    return joined([*events, *reader.finish()])


def answered(form: AnswerForm, text: str, step: int = 10**6) -> Said:
    """What a text says that is fed as an answer, `step` characters at a time."""
    reader, events = AnswerReader(form), list[AnswerEvent]()
    for begin in range(0, len(text), step):
        events += reader.feed(text[begin : begin + step])
    return joined([*events, *reader.finish()])


def tool(**properties: Any) -> dict[str, Any]:
    """The schema of a tool's parameters."""
    return {"type": "object", "properties": properties}


# A format of patches in the manner of those that coding agents use.
PATCH = r"""
start: "*** Begin" LF change+ "*** End" LF?
change: "*** File: " name LF line+
name: /(.+)/
line: ("+" | "-") /(.*)/ LF -> line
%import common.LF
"""
TEXT = '*** Begin\n*** File: a.py\n-say "ä\\n"\n+x\ty\n*** End\n'
CUSTOM = {"type": "custom", "name": "patch", "description": "Changes files."}


def patch_call(text: str) -> str:
    """A call of it with this text, as the model writes it."""
    return call_with(json.dumps({"input": text}, ensure_ascii=False))


def call_with(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "patch", "arguments": {arguments}}}\n</tool_call>'
