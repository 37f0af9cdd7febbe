"""Qwen3-Coder and later: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>`."""

import json
import re

from gateway.openai_api.tools.json_text import Tell, blank, escaped, json_of, literal, one_of, tool_name, types_of
from gateway.openai_api.tools.reader import Broken, CallReader, Parameters, Reading, Writing

_BEGIN, _END = "<tool_call>", "</tool_call>"
_FUNCTION, _END_FUNCTION = "<function=", "</function>"
_PARAMETER, _END_PARAMETER = "<parameter=", "</parameter>"
_PLAIN = re.compile(r"[^\n<]+")  # text of a value that ends none
_LONGEST = 256  # characters of a key, and of what is read ahead


class QwenXml:
    """Values are raw text, so the schema gives their types. One newline on each side of a value is markup.

    A value ends at its end marker if the next parameter or the end of the call follows. If that marker is missing, it
    ends where a line begins with one of these. Markers elsewhere are text of the value. The outer markers may be
    missing.
    """

    anywhere: tuple[str, ...] = (_BEGIN, _FUNCTION)
    at_line: tuple[str, ...] = ()

    def read(self, opener: str, calls: CallReader) -> Reading[str]:
        if opener == _BEGIN:
            if (yield from blank()) != _FUNCTION[0]:
                raise Broken
            yield from literal(_FUNCTION[1:])
        name, _ = yield from tool_name(calls, ">")
        schema, ahead, before = calls.tools[name], _Ahead(), "{"
        calls.begin(name)
        while (yield from ahead.tag()) == _PARAMETER:
            key = yield from ahead.key()
            calls.grow(f"{before}{json.dumps(key, ensure_ascii=False)}: ")
            before = ", "
            types = types_of(schema, key)
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
        _, other = yield from one_of((_END,), ahead.text or None)
        return other

    def writing(self) -> Writing:
        return Writing(
            begin=f"{_BEGIN}\n{_FUNCTION}",
            middle=">\n",
            end=f"{_END_FUNCTION}\n{_END}",
            between="\n",
            arguments=Parameters(begin=_PARAMETER, middle=">\n", end=f"\n{_END_PARAMETER}\n"),
            trigger=_BEGIN,
            tokens=(_BEGIN, _END),
        )


class _Ahead:
    """Reads the parts of a call with lookahead, since the text behind a part decides its end. `text`: read ahead."""

    def __init__(self) -> None:
        self.text = ""

    def tag(self) -> Reading[str]:
        """Read the beginning of a parameter, or the end of the call; returns which. `</tool_call>` is an end, too."""
        tags = (_PARAMETER, _END_FUNCTION, _END)
        while True:
            found = self.text.lstrip()
            tag = next((each for each in tags if found.startswith(each)), None)
            if tag is not None:
                self.text = found if tag == _END else found[len(tag) :]
                return tag
            if (found and not any(each.startswith(found) for each in tags)) or len(self.text) > _LONGEST:
                raise Broken
            yield from self._more()

    def key(self) -> Reading[str]:
        """Read a key and the character behind it."""
        while ">" not in self.text:
            if "\n" in self.text or len(self.text) > _LONGEST:
                raise Broken
            yield from self._more()
        key, _, self.text = self.text.partition(">")
        return key.strip()

    def value(self, tell: Tell) -> Reading[None]:
        """Read a value, and ahead to the tag behind it."""
        if not self.text:
            yield from self._more()
        self.text = self.text.removeprefix("\n")
        while True:
            while self.text and (behind := _behind(self.text)) is not None:
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


def _behind(text: str) -> str | None:
    """The tag behind a text that ends a value. Empty: the text does not end it; None: that is not known yet."""
    line = text.startswith("\n")
    rest = text[line:]
    try:
        if _starts(rest, _END_PARAMETER):
            tag = rest[len(_END_PARAMETER) :].lstrip()
            ends = _starts_parameter(tag) or _starts(tag, _END_FUNCTION) or _starts(tag, _END)
            return tag if ends else ""
        if line and _starts_parameter(rest):
            return rest
        if line and _starts(rest, _END_FUNCTION):
            return rest if _starts(rest[len(_END_FUNCTION) :].lstrip(), _END) else ""
    except _MayStart:
        return "" if len(text) > _LONGEST else None
    return ""


def _starts_parameter(text: str) -> bool:
    """Whether a text starts with a parameter's beginning and a key on one line. Raises _MayStart as below."""
    if not _starts(text, _PARAMETER) or "\n" in text:
        return False
    if ">" not in text:
        raise _MayStart
    return True


def _starts(text: str, marker: str) -> bool:
    """Whether a text starts with a marker. Raises _MayStart if that is not known yet."""
    if len(text) < len(marker) and marker.startswith(text):
        raise _MayStart
    return text.startswith(marker)
