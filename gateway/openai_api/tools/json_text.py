"""Reads JSON as it grows, and normalises it to a form that every JSON parser takes.

Raw control characters in strings are escaped, halves of surrogate pairs become U+FFFD, and a backslash that escapes
nothing stays one. Values that stand as text become JSON of the types that a tool's schema gives them."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gateway.openai_api.tools.reader import Broken, CallReader, Reading

Tell = Callable[[str], object]  # takes text that was read

_WHITESPACE = frozenset(" \t\r\n")
_LONGEST_NAME = 256  # characters


def ignored(_: str) -> None:
    """Discards text."""


def blank(tell: Tell = ignored, c: str | None = None) -> Reading[str]:
    """Skip whitespace. Returns the first other character. `c`: a character that was read already."""
    if c is None:
        c = yield None
    while c in _WHITESPACE:
        tell(c)
        c = yield None
    return c


def literal(text: str) -> Reading[None]:
    """Read this text. Raises Broken if another stands there."""
    for wanted in text:
        if (yield None) != wanted:
            raise Broken


def one_of(texts: Sequence[str], c: str | None = None) -> Reading[tuple[str | None, str]]:
    """Read whitespace and one of these texts. Returns the text, or None and what was read instead.

    The end of the text counts as one of them that was cut: nothing was read instead.
    """
    seen = (yield None) if c is None else c
    last = seen
    while last:
        found = seen.lstrip()
        if found in texts:
            return found, ""
        if found and not any(text.startswith(found) for text in texts):
            return None, seen
        last = yield None
        seen += last
    return None, ""


def tool_name(calls: CallReader, stops: str, c: str | None = None) -> Reading[tuple[str, str]]:
    """Read the name of a tool up to one of the characters `stops`, and return both. Raises Broken if there is none.

    `c`: a character that was read already.
    """
    name = ""
    while True:
        if c is None:
            c = yield None
        if c and c in stops and name.strip() in calls.tools:
            return name.strip(), c
        name += c
        begun = name.strip()
        if not c or len(name) > _LONGEST_NAME or not any(tool.startswith(begun) for tool in calls.tools):
            raise Broken
        c = None


CLOSERS = {"{": "}", "[": "]"}

_DEEPEST = 256  # containers in each other; readers of JSON fail beyond a thousand
_LONGEST_NUMBER = 400  # characters
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPES = frozenset('"\\/bfnrt')
_FIRST_HALF, _SECOND_HALF = re.compile(r"\\u[dD][89abAB].."), re.compile(r"\\u[dD][c-fC-F]..")
_HALF = re.compile("[\ud800-\udfff]")
_LOST = "\\ufffd"
_PLAIN = re.compile(r'[^"\'\\\x00-\x1f]+')  # text of a string that is told as it is
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_BEGINNING = re.compile(
    r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][-+]?[0-9]*)?)?"
    r"|t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?"
)

ReadValue = Callable[[str, Tell], Reading[str | None]]  # reads what begins with a character; returns the one behind it


def value(c: str, tell: Tell) -> Reading[str | None]:
    """Read a value that begins with `c`. Returns the character behind it, if that had to be read."""
    return (yield from nested(c, tell, _leaf, _key))


def nested(c: str, tell: Tell, leaf: ReadValue, key: ReadValue) -> Reading[str | None]:
    """Read a value in brackets like those of JSON, of any depth.

    `c`: its first character.
    `leaf`: reads a value without brackets. Returns the character behind it, or None if that was not read.
    `key`: reads a key and its colon. Returns the first character of the value.
    """
    closers: list[str] = []
    while True:
        behind = None
        if c not in CLOSERS:
            behind = yield from leaf(c, tell)
        else:
            tell(c)
            closers.append(CLOSERS[c])
            if len(closers) > _DEEPEST:
                raise Broken
            c = yield from blank(tell)
            if c != closers[-1]:
                c = (yield from _value_of(c, closers[-1], tell, key)) or ""
                continue
            tell(closers.pop())
        while closers:  # a value has ended
            c = yield from blank(tell, behind)
            behind = None
            if c == ",":
                tell(c)
                c = (yield from _value_of((yield from blank(tell)), closers[-1], tell, key)) or ""
                break
            if c != closers[-1]:
                raise Broken
            tell(closers.pop())
        else:
            return behind


def _value_of(c: str, closer: str, tell: Tell, key: ReadValue) -> Reading[str | None]:
    """Read to the first character of a value in a container, past its key."""
    return (yield from key(c, tell)) if closer == "}" else c


def _leaf(c: str, tell: Tell) -> Reading[str | None]:
    if c == '"':
        yield from quoted(tell)
        return None
    return (yield from scalar(c, tell))


def _key(c: str, tell: Tell) -> Reading[str | None]:
    if c != '"':
        raise Broken
    return (yield from quoted_key(tell, c))


def quoted_key(tell: Tell, mark: str) -> Reading[str]:
    """Read a key behind its quotation mark, and its colon. Returns the first character of the value."""
    yield from quoted(tell, mark)
    if (yield from blank(tell)) != ":":
        raise Broken
    tell(":")
    return (yield from blank(tell))


def scalar(c: str, tell: Tell) -> Reading[str]:
    """Read a number, true, false or null that begins with `c`. Returns the character behind it."""
    text = ""
    while c and len(text) < _LONGEST_NUMBER and _BEGINNING.fullmatch(text + c):
        tell(c)
        text += c
        c = yield None
    if not _SCALAR.fullmatch(text):
        raise Broken
    return c


def quoted(tell: Tell, mark: str = '"') -> Reading[None]:
    """Read a string behind its quotation mark; emit it in JSON's quotes."""
    tell('"')
    yield from string(tell, mark)
    tell('"')


def string(tell: Tell, mark: str = '"', plain: re.Pattern[str] | None = _PLAIN) -> Reading[None]:
    """Read a string behind its quotation mark. Each emitted piece is valid content of a JSON string.

    `plain`: text emitted in one piece.
    """
    first = ""  # the escape of the first half of a pair, which waits for the second
    while True:
        c = yield plain
        piece = (yield from _escape()) if c == "\\" else c
        second = _SECOND_HALF.fullmatch(piece) is not None
        if first or second:
            tell(first + piece if first and second else _LOST)
            first = ""
        if second:
            continue
        if c == mark:
            return
        if not c:
            raise Broken
        if _FIRST_HALF.fullmatch(piece):
            first = piece
        else:
            tell(escaped(piece) if c < " " or c == '"' else piece)


def _escape() -> Reading[str]:
    """Read an escape behind its backslash, and return it."""
    c = yield None
    if c == "u":
        digits = ""
        while len(digits) < 4:
            digit = yield None
            if digit not in _HEX:
                raise Broken
            digits += digit
        return "\\u" + digits
    if not c:
        raise Broken
    if c == "'":  # no escape of JSON, but models write it
        return c
    return "\\" + c if c in _ESCAPES else escaped("\\" + c)


def escaped(text: str) -> str:
    """A text as the content of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def text_of_string() -> Reading[str]:
    """Read a string behind its quotation mark, and return its text."""
    pieces: list[str] = []
    yield from quoted(pieces.append)
    return str(json.loads("".join(pieces)))


def object_in_string(tell: Tell) -> Reading[None]:
    """Read a string that holds the text of an object, behind its quotation mark; tell that text."""
    held = _alone(tell)
    next(held)

    def decode(piece: str) -> None:
        for c in json.loads(f'"{piece}"'):
            held.send(c)

    yield from string(decode, plain=None)  # one character at a time, since with any of them the text may be broken
    with suppress(StopIteration):
        held.send("")


def _alone(tell: Tell) -> Reading[None]:
    """Read an object, and the end of the text behind it. No text at all counts as an object without members."""
    c = yield from blank()
    if not c:
        tell("{}")
        return
    if c != "{":
        raise Broken
    yield from value(c, tell)
    if (yield from blank()):
        raise Broken


def is_scalar(text: str) -> bool:
    """Whether a text is a number, true, false or null."""
    return len(text) < _LONGEST_NUMBER and _SCALAR.fullmatch(text) is not None


def whole_value(text: str) -> tuple[Any, str] | None:
    """A value, and its normalised JSON; None: the text is no JSON."""
    try:
        value = json.loads(text, strict=False)
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value, text.strip() if is_scalar(text.strip()) else _HALF.sub("\ufffd", written)


_DEEPEST_REFERENCE = 8  # schemas that refer to others
_AS_PYTHON_WRITES = {"True": "true", "False": "false", "None": "null"}
_NUMBERS = ("integer", "number")
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def types_of(schema: Mapping[str, Any], parameter: str) -> frozenset[str]:
    """JSON Schema's names of the types that a parameter of a tool may have; empty if the schema does not say.

    `schema`: that of all parameters.
    """
    properties = schema.get("properties")
    own = properties.get(parameter) if isinstance(properties, Mapping) else None
    return _types(schema.get("additionalProperties") if own is None else own, schema, _DEEPEST_REFERENCE, set())


def _types(schema: Any, root: Mapping[str, Any], depth: int, followed: set[str]) -> frozenset[str]:
    """`followed`: references that were looked at. None is followed twice, which keeps the time linear."""
    if not isinstance(schema, Mapping) or not depth:
        return frozenset()
    found: set[str] = {"null"} if schema.get("nullable") is True else set()
    given = schema.get("type")
    if given is not None:
        found.update(each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str))
    elif isinstance(schema.get("enum"), list) or "const" in schema:
        found.update(kind_of(each) for each in schema.get("enum", [schema.get("const")]))
    elif isinstance(schema.get("$ref"), str):
        if schema["$ref"] not in followed:
            followed.add(schema["$ref"])
            found |= _types(referred(schema["$ref"], root), root, depth - 1, followed)
    else:
        for several in ("anyOf", "oneOf", "allOf"):
            for each in schema[several] if isinstance(schema.get(several), list) else []:
                found |= _types(each, root, depth - 1, followed)
    return frozenset(found)


def referred(reference: str, root: Mapping[str, Any]) -> Any:
    """The schema in `root` that a reference names; None if there is none."""
    found: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def kind_of(value: Any) -> str:
    """JSON Schema's name of a value's type."""
    return _KINDS.get(type(value), "null")


def json_of(text: str, types: frozenset[str]) -> str:
    """The JSON of a value that is written as text: of one of these types if the text can be read so, else a string.

    Without types, what can be read as JSON is. Strings are written without quotes.
    """
    plain = text.strip()
    found = whole_value(_AS_PYTHON_WRITES.get(plain, plain) if types else plain)
    if found is not None:
        value, written = found
        kind = kind_of(value)
        fits = not types or kind in types or (kind in _NUMBERS and not types.isdisjoint(_NUMBERS))
        if fits and kind != "string":
            return written
    return json.dumps(text, ensure_ascii=False)
