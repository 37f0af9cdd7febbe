"""Mistral: `[TOOL_CALLS]NAME[ARGS]{…}` for each call, or, of older models, `[TOOL_CALLS][{"name": NAME, …}, …]`."""

from dataclasses import replace

from gateway.openai_api.tools.characters import blank, literal, one_of, tool_name
from gateway.openai_api.tools.json_calls import LIST, arguments, call_list, call_object
from gateway.openai_api.tools.notation import Broken, Calls, Reading, Writing

_CALLS, _ARGUMENTS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"


class Mistral:
    """Both forms are read. An id behind the name is passed over; `[ARGS]` may be missing."""

    anywhere: tuple[str, ...] = (_CALLS,)
    at_line: tuple[str, ...] = ()

    def __init__(self, *, as_list: bool) -> None:
        """`as_list`: how calls are written, in the older form."""
        self._as_list = as_list

    def read(self, opener: str, calls: Calls) -> Reading[str]:
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
        return Writing(
            begin=_CALLS, middle=_ARGUMENTS, end="", between="", trigger=_CALLS, tokens=(_CALLS, _ARGUMENTS, _ID)
        )


def _marker(c: str) -> Reading[None]:
    """Read the marker of the arguments, which begins with `c`, and an id before it."""
    found, _ = yield from one_of((_ARGUMENTS, _ID), c)
    if found is None:
        raise Broken
    if found == _ID:
        while (c := (yield None)) != "[":
            if not c.isalnum():
                raise Broken
        yield from literal(_ARGUMENTS[1:])
