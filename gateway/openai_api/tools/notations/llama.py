"""Llama 3.x: `{"name": NAME, "parameters": {…}}`, perhaps behind `<|python_tag|>`; several are separated by `;`."""

from gateway.openai_api.tools.characters import blank, one_of
from gateway.openai_api.tools.json_calls import call_object
from gateway.openai_api.tools.notation import Broken, Calls, Reading, Writing

_TAG, _BETWEEN = "<|python_tag|>", ";"


class Llama:
    """Code behind the tag is no call."""

    anywhere: tuple[str, ...] = (_TAG,)
    at_line: tuple[str, ...] = ("{",)

    def read(self, opener: str, calls: Calls) -> Reading[str]:
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
