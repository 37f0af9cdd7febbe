"""Hermes and Qwen: `<tool_call>{"name": NAME, "arguments": {…}}</tool_call>`."""

from gateway.openai_api.tools.characters import blank, one_of
from gateway.openai_api.tools.json_calls import call_list, call_object
from gateway.openai_api.tools.notation import Broken, Calls, Reading, Writing
from gateway.openai_api.tools.notations.generic import FENCE, Generic

_PLAIN = Generic()
_BEGIN, _END = "<tool_call>", "</tool_call>"


class Hermes:
    """Beside that, several objects or a list in one pair of markers are read, and calls whose end marker is missing.

    Small models write calls without markers, too, as plain JSON or in a fence.
    """

    anywhere: tuple[str, ...] = (_BEGIN,)
    at_line: tuple[str, ...] = ("{", FENCE)

    def read(self, opener: str, calls: Calls) -> Reading[str]:
        if opener != _BEGIN:
            return (yield from _PLAIN.read(opener, calls))
        c: str | None = yield from blank()
        while True:
            if c == "[":
                yield from call_list(calls, lone=False)
                behind = None
            elif c == "{":
                behind = yield from call_object(calls, lone=False)
            else:
                raise Broken
            c, other = yield from one_of((_END, "{"), behind)
            if c != "{":
                return other

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
