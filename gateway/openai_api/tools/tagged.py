"""Calls whose arguments stand between tags, one by one: Qwen3-Coder, GLM, Seed-OSS, MiniMax, DeepSeek since V3.2."""

import json
import re

from gateway.openai_api.tools.json_text import Tell, blank, escaped, json_of, literal, one_of, tool_name, types_of
from gateway.openai_api.tools.reader import Broken, CallReader, Parameters, Reading, Writing

_PLAIN = re.compile(r"[^\n<]+")  # text of a value that ends none
_TAG, _END_TAG = re.compile(r"</?[^<>]+>"), re.compile(r"</[^<>]+>")
_TYPED = re.compile(r'(.*)" string="(true|false)', re.DOTALL)  # a key, and whether its value is a string
_LONGEST = 256  # characters of a key, and of what is read ahead


class Tagged:
    """Values are raw text: the schema gives their types, or a mark beside the key. Where they stand on lines of their
    own, one newline on each side of a value is markup.

    A value ends at its end marker if the next parameter or the end of the call follows. If that marker is missing, it
    ends where a line begins with one of these. Markers elsewhere are text of the value. The outer markers may be
    missing, and several calls may stand between two of them.
    """

    at_line: tuple[str, ...] = ()

    def __init__(self, writing: Writing) -> None:
        """`writing`: its trigger begins the calls."""
        assert isinstance(writing.arguments, Parameters) and writing.trigger is not None
        self._writing, self._named = writing, writing.middle.strip()
        self._call = (writing.before + writing.begin).removeprefix(writing.trigger).strip()  # before a name
        ends = _END_TAG.findall(writing.end + writing.after)  # that of a call may be that of all calls, too
        self._tags = _Tags(writing.arguments, ends[0], ends[-1])
        self.anywhere: tuple[str, ...] = (writing.trigger, *([self._call] if self._call else []))

    def read(self, opener: str, calls: CallReader) -> Reading[str]:
        tags = self._tags
        if self._call and opener != self._call:
            if (yield from blank()) != self._call[0]:
                raise Broken
            yield from literal(self._call[1:])
        name, c = yield from tool_name(calls, self._named[:1] or "\n<")
        schema, ahead, before = calls.tools[name], _Ahead(tags, "" if self._named else c), "{"
        calls.begin(name)
        head = (yield from one_of((self._named[1:], "/>")))[0] if self._named[1:] else ""
        if head is None:
            raise Broken
        while head != "/>" and (yield from ahead.tag()) == tags.begin:
            key, types = yield from ahead.key()
            calls.grow(f"{before}{json.dumps(key, ensure_ascii=False)}: ")
            before = ", "
            types = types_of(schema, key) if types is None else types
            if types == {"string"}:
                calls.grow('"')
                yield from ahead.value(lambda text: calls.grow(escaped(text)))
                calls.grow('"')
            else:
                pieces: list[str] = []
                yield from ahead.value(pieces.append)
                calls.grow(json_of("".join(pieces), types))
        calls.grow("{}" if before == "{" else "}")
        calls.end()
        _, other = yield from one_of((tags.end,), ahead.text or None)
        return other

    def writing(self) -> Writing:
        return self._writing


class _Tags:
    """The tags of parameters in a style, and where they end a value."""

    def __init__(self, form: Parameters, end_call: str, end: str) -> None:
        """`end_call`: behind the parameters. `end`: behind all calls."""
        self.begin, self.end_value, self.end_call, self.end = form.begin, form.end.strip(), end_call, end
        tags = _TAG.findall(form.middle)  # those around what stands between key and value, where there are two
        self.end_key: str = tags[0] if tags else form.middle.strip()[-2:]
        self.value: str = tags[1] if tags else ""
        self.typed, self.lines = form.other is not None, form.end.startswith("\n")

    def behind(self, text: str) -> str | None:
        """The tag behind a text that ends a value. Empty: the text does not end it; None: that is not known yet."""
        line = text.startswith("\n")
        rest = text[line:]
        try:
            if (self.lines or not line) and _starts(rest, self.end_value):
                tag = rest[len(self.end_value) :].lstrip()
                ends = self._starts_parameter(tag) or _starts(tag, self.end_call) or _starts(tag, self.end)
                return tag if ends else ""
            if line and self._starts_parameter(rest):
                return rest
            if line and _starts(rest, self.end_call):
                return rest if _starts(rest[len(self.end_call) :].lstrip(), self.end) else ""
        except _MayStart:
            return "" if len(text) > _LONGEST else None
        return ""

    def _starts_parameter(self, text: str) -> bool:
        """Whether a text starts with a parameter's beginning and a key on one line. Raises _MayStart as below."""
        if not _starts(text, self.begin) or "\n" in text:
            return False
        if self.end_key not in text:
            raise _MayStart
        return True


class _Ahead:
    """Reads the parts of a call with lookahead, since the text behind a part decides its end. `text`: read ahead."""

    def __init__(self, tags: _Tags, text: str) -> None:
        self._tags, self.text = tags, text

    def tag(self) -> Reading[str]:
        """Read the beginning of a parameter, or the end of the call; returns which. That of all calls is one, too."""
        tags = (self._tags.begin, self._tags.end_call, self._tags.end)
        while True:
            found = self.text.lstrip()
            tag = next((each for each in tags if found.startswith(each)), None)
            if tag is not None:
                self.text = found if tag == self._tags.end else found[len(tag) :]
                return tag
            if (found and not any(each.startswith(found) for each in tags)) or len(self.text) > _LONGEST:
                raise Broken
            yield from self._more()

    def key(self) -> Reading[tuple[str, frozenset[str] | None]]:
        """Read a key up to its value. Returns the types beside it, too: none for any; None: nothing stands there."""
        while self._tags.end_key not in self.text:
            if "\n" in self.text or len(self.text) > _LONGEST:
                raise Broken
            yield from self._more()
        key, _, self.text = self.text.partition(self._tags.end_key)
        while not self.text.lstrip().startswith(self._tags.value):
            if not self._tags.value.startswith(self.text.lstrip()):
                raise Broken
            yield from self._more()
        if self._tags.value:
            self.text = self.text.lstrip().removeprefix(self._tags.value)
        typed = _TYPED.fullmatch(key) if self._tags.typed else None
        if typed is None:
            return key.strip(), None
        return typed[1].strip(), frozenset(["string"] if typed[2] == "true" else [])

    def value(self, tell: Tell) -> Reading[None]:
        """Read a value, and ahead to the tag behind it."""
        if not self.text:
            yield from self._more()
        if self._tags.lines:
            self.text = self.text.removeprefix("\n")
        while True:
            while self.text and (behind := self._tags.behind(self.text)) is not None:
                if behind:
                    self.text = behind
                    return
                tell(self.text[0])
                self.text = self.text[1:]
            yield from self._more(None if self.text else _PLAIN)
            if self.text[0] not in "\n<":
                tell(self.text)
                self.text = ""

    def _more(self, run: re.Pattern[str] | None = None) -> Reading[None]:
        c = yield run
        if not c:
            raise Broken
        self.text += c


class _MayStart(Exception):
    """A text is the beginning of a marker."""


def _starts(text: str, marker: str) -> bool:
    """Whether a text starts with a marker. Raises _MayStart if that is not known yet."""
    if len(text) < len(marker) and marker.startswith(text):
        raise _MayStart
    return text.startswith(marker)
