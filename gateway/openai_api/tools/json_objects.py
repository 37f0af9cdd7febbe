"""Calls that are JSON objects with a name and arguments, whatever their keys are called: plain ones, and those of
Hermes and Qwen, Llama 3, and Mistral."""

from dataclasses import replace

from gateway.openai_api.tools.json_text import (
    Tell,
    blank,
    ignored,
    literal,
    object_in_string,
    one_of,
    scalar,
    text_of_string,
    tool_name,
    value,
)
from gateway.openai_api.tools.reader import Broken, CallReader, Reading, Writing

_NAMES, _ARGUMENTS = ("name", "tool_name"), ("arguments", "parameters")
_BESIDE = ("type", "id", "tool_call_id")  # other keys that may stand before the name

LIST = Writing(before="[", begin='{"name": "', middle='", "arguments": ', end="}", between=", ", after="]")


def call_object(calls: CallReader, *, lone: bool) -> Reading[str | None]:
    """Read a call behind the `{` of its object. Returns the character behind it, if that had to be read.

    A call with whole arguments lacks only its bracket: other text behind them ends the call, too. The brackets
    may be there twice: the templates of Qwen2.5-Coder show calls so.

    `lone`: no marker precedes the call. Then JSON without arguments, or with other keys first, is no call, and is not
    held back for long.
    """
    name: str | None = None
    told = False  # whether the arguments were
    held: list[str] | None = None  # arguments that stand before the name
    c = yield from blank()
    if twice := c == "{":
        c = yield from blank()
    while True:
        if c != '"':
            raise Broken
        key = yield from text_of_string()
        if (yield from blank()) != ":":
            raise Broken
        c = yield from blank()
        behind: str | None = None
        if key in _NAMES and name is None:
            if c != '"':
                raise Broken
            name = yield from text_of_string()
            if name not in calls.tools:
                raise Broken
            if held is not None:
                _tell(calls, name, "".join(held))
                told = True
        elif key in _ARGUMENTS and not told and held is None:
            if name is None:
                held = []
                behind = yield from arguments(c, held.append)
            else:
                calls.begin(name)
                behind = yield from arguments(c, calls.grow)
                told = True
        elif lone and name is None and key not in _BESIDE:
            raise Broken
        else:
            behind = yield from value(c, ignored)
        c = yield from blank(c=behind)
        if c != ",":
            break
        c = yield from blank()
    if name is None or not c or (c != "}" and not told) or (lone and not told):
        raise Broken
    if not told:
        _tell(calls, name, "{}")
    calls.end()
    if twice and c == "}":
        c = yield None
    return None if c == "}" else c


def _tell(calls: CallReader, name: str, text: str) -> None:
    calls.begin(name)
    calls.grow(text)


def arguments(c: str, tell: Tell) -> Reading[str | None]:
    """Read arguments that begin with `c`: an object, a string that holds one, or null.

    Returns the character behind them, if that had to be read.
    """
    if c == "{":
        return (yield from value(c, tell))
    if c == '"':
        yield from object_in_string(tell)
        return None
    if c != "n":
        raise Broken
    behind = yield from scalar(c, ignored)
    tell("{}")
    return behind


def call_list(calls: CallReader, *, lone: bool) -> Reading[None]:
    """Read calls behind the `[` of their list. `lone`: as above."""
    while True:
        if (yield from blank()) != "{":
            raise Broken
        c = yield from blank(c=(yield from call_object(calls, lone=lone)))
        if c == "]":
            return
        if c != ",":
            raise Broken


FENCE = "```"
_LONGEST_LANGUAGE = 16  # characters
# What stands behind calls, by what stands before them. It may be missing.
_MARKERS = {
    "<tool_call>": "</tool_call>",
    "<tool_calls>": "</tool_calls>",  # Apriel, MiniMax-M1
    "<TOOLCALL>": "</TOOLCALL>",  # Nemotron Nano v2
    "<|tool_call|>": "<|/tool_call|>",  # Granite 3.3 (without an end), Phi-4-mini
    "<|START_ACTION|>": "<|END_ACTION|>",  # Command R7B
    "<|function_call|>": "",  # GigaChat 3.1
    "functools[": "",  # FireFunction; the bracket is that of the list
}


class Generic:
    """Calls of models whose template shows no other style. Several objects may follow each other."""

    anywhere: tuple[str, ...] = tuple(_MARKERS)
    at_line: tuple[str, ...] = ("{", "[", FENCE)

    def read(self, opener: str, calls: CallReader) -> Reading[str]:
        marked = opener in _MARKERS
        c: str | None = opener[-1]
        if opener == FENCE:
            c = yield from _in_fence()
        elif marked and c != "[":
            c = yield from blank()
        end = _MARKERS.get(opener, FENCE)
        while True:
            behind = None
            if c == "[":
                yield from call_list(calls, lone=not marked)
            elif c == "{":
                behind = yield from call_object(calls, lone=not marked)
            else:
                raise Broken
            if opener in "{[" or not end:
                return behind or ""
            c, other = yield from one_of((end, "{"), behind)
            if c != "{":
                return other

    def writing(self) -> Writing:
        return replace(LIST, tokens=tuple(each for each in (*_MARKERS, *_MARKERS.values()) if each), plain=True)


def _in_fence() -> Reading[str]:
    """Read the language behind a fence. Returns the content's first character."""
    language = ""
    while not (c := (yield None)).isspace() and c not in ("{", "["):
        language += c
        if not (c.isalnum() or c == "_") or len(language) > _LONGEST_LANGUAGE:
            raise Broken
    return (yield from blank(c=c))


_BEGIN, _END = "<tool_call>", "</tool_call>"


class Hermes(Generic):
    """Also reads several objects or a list in one pair of markers, and calls whose end marker is missing.

    Small models write calls without markers, too, as plain JSON or in a fence.
    """

    anywhere: tuple[str, ...] = (_BEGIN,)
    at_line: tuple[str, ...] = ("{", FENCE)

    def writing(self) -> Writing:
        return Writing(
            begin=f'{_BEGIN}\n{{"name": "',
            middle='", "arguments": ',
            end=f"}}\n{_END}",
            between="\n",
            trigger=_BEGIN,
            tokens=(_BEGIN, _END),
            plain=True,
        )


_TAG, _BETWEEN = "<|python_tag|>", ";"


class Llama:
    """Code behind the tag is no call."""

    anywhere: tuple[str, ...] = (_TAG,)
    at_line: tuple[str, ...] = ("{",)

    def read(self, opener: str, calls: CallReader) -> Reading[str]:
        if opener == _TAG and (yield from blank()) != "{":
            raise Broken
        while True:
            behind = yield from call_object(calls, lone=opener != _TAG)
            found, other = yield from one_of((_BETWEEN,), behind)
            if found is None:
                return other
            c = yield from blank()
            if not c:
                return ""
            if c != "{":
                raise Broken

    def writing(self) -> Writing:
        return Writing(begin='{"name": "', middle='", "parameters": ', end="}", between=f"{_BETWEEN} ", tokens=(_TAG,))


_CALLS, _ARGS, _CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"


class Mistral:
    """Reads both forms. Skips an id behind the name; `[ARGS]` may be missing."""

    anywhere: tuple[str, ...] = (_CALLS,)
    at_line: tuple[str, ...] = ()

    def __init__(self, *, as_list: bool) -> None:
        """`as_list`: how calls are written, in the older form."""
        self._as_list = as_list

    def read(self, opener: str, calls: CallReader) -> Reading[str]:
        c = yield from blank()
        if c == "[":
            yield from call_list(calls, lone=False)
            return ""
        if c == "{":
            return (yield from call_object(calls, lone=False)) or ""
        name, c = yield from tool_name(calls, "[{", c)
        if c == "[":
            yield from _marker(c)
            c = yield from blank()
        calls.begin(name)
        behind = yield from arguments(c, calls.grow)
        calls.end()
        return behind or ""

    def writing(self) -> Writing:
        if self._as_list:
            return replace(LIST, before=_CALLS + LIST.before, trigger=_CALLS, tokens=(_CALLS,))
        return Writing(begin=_CALLS, middle=_ARGS, end="", between="", trigger=_CALLS, tokens=(_CALLS, _ARGS, _CALL_ID))


def _marker(c: str) -> Reading[None]:
    """Read the marker of the arguments, which begins with `c`, and an id before it."""
    found, _ = yield from one_of((_ARGS, _CALL_ID), c)
    if found is None:
        raise Broken
    if found == _CALL_ID:
        while (c := (yield None)) != "[":
            if not c.isalnum():
                raise Broken
        yield from literal(_ARGS[1:])
