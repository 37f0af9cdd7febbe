"""Llama 4, LFM2 and Olmo 3: `[NAME(KEY=VALUE, …), …]`, perhaps between markers, with values as Python writes them."""

import json

from gateway.openai_api.tools.json_text import Tell, blank, nested, one_of, quoted, quoted_key, scalar, tool_name
from gateway.openai_api.tools.reader import Broken, CallReader, Keywords, Reading, Writing

_MARKERS = {"<|tool_call_start|>": "<|tool_call_end|>", "<|python_start|>": "<|python_end|>"}
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_LONGEST_KEY = 256  # characters


class Pythonic:
    """Calls have keys and literals only. Escapes in strings are those of JSON."""

    anywhere: tuple[str, ...] = tuple(_MARKERS)
    at_line: tuple[str, ...] = ("[",)

    def read(self, opener: str, calls: CallReader) -> Reading[str]:
        if opener in _MARKERS and (yield from blank()) != "[":
            raise Broken
        while True:
            c = yield from _call(calls, (yield from blank()))
            if c == "]":
                break
            if c != ",":
                raise Broken
        if opener not in _MARKERS:
            return ""
        _, other = yield from one_of((_MARKERS[opener],))
        return other

    def writing(self) -> Writing:
        return Writing(
            before="[",
            begin="",
            middle="(",
            end=")",
            between=", ",
            after="]",
            arguments=Keywords(middle="=", between=", "),
            tokens=(*_MARKERS, *_MARKERS.values()),
        )


_BEGIN, _END = "<function_calls>", "</function_calls>"


class Lines:
    """Olmo 3: each call stands on a line of its own, without a list's brackets. The end marker may be missing."""

    anywhere: tuple[str, ...] = (_BEGIN,)
    at_line: tuple[str, ...] = ()

    def read(self, opener: str, calls: CallReader) -> Reading[str]:
        c = yield from blank()
        if c == _END[0]:
            raise Broken
        while c != _END[0]:
            c = yield from _call(calls, c)
            if not c:
                return ""
        _, other = yield from one_of((_END,), c)
        return other

    def writing(self) -> Writing:
        return Writing(
            before=f"{_BEGIN}\n",
            begin="",
            middle="(",
            end=")",
            between="\n",
            after=f"\n{_END}",
            arguments=Keywords(middle="=", between=", "),
            trigger=_BEGIN,
            tokens=(_BEGIN, _END),
        )


def _call(calls: CallReader, c: str) -> Reading[str]:
    """Read a call that begins with `c`. Returns the first character behind it that is no whitespace."""
    name, _ = yield from tool_name(calls, "(", c)
    calls.begin(name)
    yield from _keywords(calls.grow)
    calls.end()
    return (yield from blank())


def _keywords(tell: Tell) -> Reading[None]:
    """Read arguments behind the bracket that opens them, and the one that closes them."""
    before = "{"
    c = yield from blank()
    while c != ")":
        key = ""
        while c == "_" or c.isalnum():
            key += c
            c = yield None
            if len(key) > _LONGEST_KEY:
                raise Broken
        c = yield from blank(c=c)
        if not key or c != "=":
            raise Broken
        tell(f"{before}{json.dumps(key, ensure_ascii=False)}: ")
        before = ", "
        behind = yield from nested((yield from blank()), tell, _leaf, _key)
        c = yield from blank(c=behind)
        if c == ",":
            c = yield from blank()
        elif c != ")":
            raise Broken
    tell("{}" if before == "{" else "}")


def _leaf(c: str, tell: Tell) -> Reading[str | None]:
    """Read a string, a number or a word."""
    if c in ("'", '"'):
        yield from quoted(tell, c)
        return None
    if not c.isalpha():
        return (yield from scalar(c, tell))
    word = ""
    while any(each.startswith(word + c) for each in _WORDS) and c:
        word += c
        c = yield None
    if word not in _WORDS:
        raise Broken
    tell(_WORDS[word])
    return c


def _key(c: str, tell: Tell) -> Reading[str | None]:
    if c not in ("'", '"'):
        raise Broken
    return (yield from quoted_key(tell, c))
