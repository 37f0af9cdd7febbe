"""Plain JSON: an object `{"name": NAME, "arguments": {…}}` or a list of them, perhaps in a fence or between markers."""

from dataclasses import replace

from gateway.openai_api.tools.characters import blank, one_of
from gateway.openai_api.tools.json_calls import LIST, call_list, call_object
from gateway.openai_api.tools.notation import Broken, Calls, Reading, Writing

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
    """For models whose template shows none of the other styles. Several objects may follow each other."""

    anywhere: tuple[str, ...] = tuple(_MARKERS)
    at_line: tuple[str, ...] = ("{", "[", FENCE)

    def read(self, opener: str, calls: Calls) -> Reading[str]:
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
    """Read the language behind a fence. Returns the first character of what is in it."""
    language = ""
    while not (c := (yield None)).isspace() and c not in ("{", "["):
        language += c
        if not (c.isalnum() or c == "_") or len(language) > _LONGEST_LANGUAGE:
            raise Broken
    return (yield from blank(c=c))
