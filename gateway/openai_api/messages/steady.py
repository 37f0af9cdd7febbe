"""Lines that agents put on top of their system prompt, that change with each request and say nothing to the model.

Without these lines, a prompt begins as the one before, so that the KV cache holds what both share.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from specpair.http_service.hints import take_hint

Json = dict[str, Any]
LINES: Mapping[str, re.Pattern[str]] = {  # by the name that the reply has for a line that is left out
    # Claude Code's: pairs of a name and a value, such as `cch`, a hash over the request. Text may follow at once.
    "x-anthropic-billing-header": re.compile(r"x-anthropic-billing-header:(?:[ \t]*\w+=[^\s;]*;?)+\s*"),
}


def without_lines(messages: Sequence[Json]) -> list[Json]:
    """The messages for a chat template without these lines, where system messages, or parts of them, begin with one.

    The header `x-specpair-ignored` of the present request's reply names the lines.
    """
    leading = [*takewhile(lambda each: each["role"] == "system", messages)]
    changed = [each | {"content": _content(each["content"], f"messages.{at}")} for at, each in enumerate(leading)]
    return [*changed, *messages[len(leading) :]]


def _content(content: str | list[Json], path: str) -> str | list[Json]:
    if isinstance(content, str):
        return _text(content, path)
    parts = [part | {"text": _text(part["text"], path)} for part in content]
    return [part for part in parts if part["text"]] or parts


def _text(text: str, path: str) -> str:
    for name, line in LINES.items():
        if (found := line.match(text)) is not None:
            take_hint(f"{path}.{name}", strictly=False)
            text = text[found.end() :]
    return text
