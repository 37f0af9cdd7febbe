"""Reads calls that are written as JSON objects with a name and arguments, whatever their keys are called."""

from gateway.openai_api.tools.characters import Tell, blank, ignored
from gateway.openai_api.tools.json_text import object_in_string, scalar, text_of_string, value
from gateway.openai_api.tools.notation import Broken, Calls, Reading, Writing

_NAMES, _ARGUMENTS = ("name", "tool_name"), ("arguments", "parameters")
_BESIDE = ("type", "id", "tool_call_id")  # other keys that may stand before the name

LIST = Writing(before="[", begin='{"name": "', middle='", "arguments": ', end="}", between=", ", after="]")


def call_object(calls: Calls, *, lone: bool) -> Reading[str | None]:
    """Read a call behind the `{` of its object. Returns the character behind it, if that had to be read.

    A call whose arguments are whole lacks nothing but its bracket: other text behind them ends it, too. The brackets
    may be there twice: the templates of Qwen2.5-Coder show calls so.

    `lone`: no marker says that this is a call. JSON without arguments is none then, nor is JSON that begins with other
    keys, of which nothing is held back for long.
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


def _tell(calls: Calls, name: str, text: str) -> None:
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


def call_list(calls: Calls, *, lone: bool) -> Reading[None]:
    """Read calls behind the `[` of their list. `lone`: as above."""
    while True:
        if (yield from blank()) != "{":
            raise Broken
        c = yield from blank(c=(yield from call_object(calls, lone=lone)))
        if c == "]":
            return
        if c != ",":
            raise Broken
