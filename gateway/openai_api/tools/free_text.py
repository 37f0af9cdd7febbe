"""Tools that take a free text. The model sees and calls them as functions with one argument, the text."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from gateway.openai_api.tools.reader import ArgumentsGrew, CallBegan, CallEnded, Tools

TEXT_ARGUMENT = "input"
_BEGIN = re.compile(r'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*"')
_MAY_BEGIN = re.compile(r'\s*(?:\{\s*(?:"(?:[^"\\]|\\.)*(?:\\|"\s*(?::\s*)?)?)?)?')
_CONTENT = re.compile(r'(?:[^"\\]|\\(?:u[dD][89abAB]\w\w\\u\w{4}|u\w{4}|[^u]))*')


class TextArgument(dict[str, Any]):
    """The schema of the argument. `syntax`, `definition`: of the text's grammar; empty: any text."""

    def __init__(self, syntax: str = "", definition: str = "") -> None:
        self.syntax, self.definition = syntax, definition
        what = {"lark": "in this Lark grammar", "regex": "that matches this regular expression"}.get(syntax)
        says = f"The text, {what}:\n{definition}" if what else "The text, without any form."
        argument = {TEXT_ARGUMENT: {"type": "string", "description": says}}
        super().__init__(type="object", properties=argument, required=[TEXT_ARGUMENT], additionalProperties=False)


class FreeTexts:
    """Replaces the arguments of calls by the text in them, as they grow."""

    def __init__(self, tools: Tools) -> None:
        self._names = {name for name, schema in tools.items() if isinstance(schema, TextArgument)}
        self._text: _Text | None = None  # of the present call

    def told(self, events: Iterable[Any]) -> Iterator[Any]:
        """Events with the texts of calls."""
        for event in events:
            if isinstance(event, CallBegan) and event.name in self._names:
                self._text = _Text()
                yield replace(event, free=True)
            elif isinstance(event, ArgumentsGrew) and self._text is not None:
                if text := self._text.feed(event.text):
                    yield replace(event, text=text, free=True)
            else:
                self._text = None if isinstance(event, CallEnded) else self._text
                yield event


class _Text:
    """The string that is the first member of an object, read as JSON grows. What is no such object is text itself."""

    def __init__(self) -> None:
        self._pending, self._begun, self._whole = "", False, False

    def feed(self, text: str) -> str:
        self._pending += text
        if not self._begun:
            if _MAY_BEGIN.fullmatch(self._pending):
                return ""
            found = _BEGIN.match(self._pending)
            self._begun, self._whole = True, found is None
            self._pending = self._pending[found.end() :] if found else self._pending
        if self._whole:
            text, self._pending = self._pending, ""
            return "" if text.strip() == "{}" else text
        content = _CONTENT.match(self._pending)
        read = content[0] if content else ""
        self._pending = self._pending[len(read) :]
        if self._pending.startswith('"'):  # what follows is no text
            self._pending = '"'
        return str(json.loads(f'"{read}"', strict=False))
