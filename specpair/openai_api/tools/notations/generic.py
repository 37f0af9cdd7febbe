"""Plain JSON: an object `{"name": NAME, "arguments": {…}}` or a list of them, perhaps in a fence of three backticks."""

from specpair.openai_api.tools.characters import blank, one_of
from specpair.openai_api.tools.json_calls import call_list, call_object
from specpair.openai_api.tools.notation import Broken, Calls, Reading, Writing

_FENCE = "```"
_LONGEST_LANGUAGE = 16  # characters


class Generic:
    """For models whose template shows none of the other styles."""

    anywhere: tuple[str, ...] = ()
    at_line: tuple[str, ...] = ("{", "[", _FENCE)

    def read(self, opener: str, calls: Calls) -> Reading[str]:
        c: str | None = (yield from _in_fence()) if opener == _FENCE else opener
        while True:
            behind = None
            if c == "[":
                yield from call_list(calls, lone=True)
            elif c == "{":
                behind = yield from call_object(calls, lone=True)
            else:
                raise Broken
            if opener != _FENCE:
                return behind or ""
            c, other = yield from one_of((_FENCE, "{"), behind)
            if c != "{":
                return other

    def writing(self) -> Writing:
        return Writing(begin='{"name": "', middle='", "arguments": ', end="}", between=", ", before="[", after="]")


def _in_fence() -> Reading[str]:
    """Read the language behind a fence. Returns the first character of what is in it."""
    language = ""
    while not (c := (yield None)).isspace() and c not in ("{", "["):
        language += c
        if not (c.isalnum() or c == "_") or len(language) > _LONGEST_LANGUAGE:
            raise Broken
    return (yield from blank(c=c))
