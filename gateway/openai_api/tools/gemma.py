"""Gemma 4: `<|tool_call>call:NAME{KEY:VALUE,…}<tool_call|>`, with bare keys and strings between `<|"|>`."""

import json
import re

from gateway.openai_api.tools.json_text import (
    Tell,
    blank,
    escaped,
    is_scalar,
    literal,
    nested,
    one_of,
    quoted,
    tool_name,
)
from gateway.openai_api.tools.reader import BareKeys, Broken, CallReader, Reading, Writing

_BEGIN, _END, _CALL, _QUOTE = "<|tool_call>", "<tool_call|>", "call:", '<|"|>'
_LONGEST = 1024  # characters of a key, or of a value without quotes
_PLAIN = re.compile(r"[^<]+")  # text of a string that ends none
_NO_TEXT = frozenset(["", "<", "{", "[", "\n"])  # what a key or a value without quotes cannot hold


class Gemma:
    """Also reads strings and keys in JSON's quotes, and strings without quotes."""

    anywhere: tuple[str, ...] = (_BEGIN,)
    at_line: tuple[str, ...] = ()

    def read(self, opener: str, calls: CallReader) -> Reading[str]:
        c = yield from blank()
        if c != _CALL[0]:
            raise Broken
        yield from literal(_CALL[1:])
        name, c = yield from tool_name(calls, "{")
        calls.begin(name)
        yield from nested(c, calls.grow, _leaf, _key)
        calls.end()
        _, other = yield from one_of((_END,))
        return other

    def writing(self) -> Writing:
        return Writing(
            begin=f"{_BEGIN}{_CALL}",
            middle="",
            end=_END,
            between="",
            arguments=BareKeys(_QUOTE),
            trigger=_BEGIN,
            tokens=(_BEGIN, _END, _QUOTE),
        )


def _leaf(c: str, tell: Tell) -> Reading[str | None]:
    """Read a string, or a number or word up to the character that ends it."""
    if c == _QUOTE[0]:
        yield from _string(tell)
        return None
    if c == '"':
        yield from quoted(tell)
        return None
    word, c = yield from _bare(c, ",}]")
    tell(word if is_scalar(word) else json.dumps(word, ensure_ascii=False))
    return c


def _key(c: str, tell: Tell) -> Reading[str | None]:
    if c in (_QUOTE[0], '"'):
        yield from _leaf(c, tell)
        c = yield from blank()
        if c != ":":
            raise Broken
    else:
        word, c = yield from _bare(c, ":")
        tell(json.dumps(word, ensure_ascii=False))
    tell(":")
    return (yield from blank())


def _bare(c: str, stops: str) -> Reading[tuple[str, str]]:
    """Read a text without quotes that begins with `c`. Returns it with the character of `stops` behind it."""
    text = ""
    while c in _NO_TEXT or c not in stops:
        text += c
        if c in _NO_TEXT or len(text) > _LONGEST:
            raise Broken
        c = yield None
    if not text:
        raise Broken
    return text.rstrip(), c


def _string(tell: Tell) -> Reading[None]:
    """Read a string behind the first character of its quote."""
    yield from literal(_QUOTE[1:])
    tell('"')
    held = ""  # what may be the beginning of the quote behind it
    while held != _QUOTE:
        c = yield None if held else _PLAIN
        if not c:
            raise Broken
        if not held and c[0] != _QUOTE[0]:
            tell(escaped(c))
            continue
        held += c
        while not _QUOTE.startswith(held):
            tell(escaped(held[0]))
            held = held[1:]
    tell('"')
