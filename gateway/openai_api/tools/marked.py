"""Calls that are a name and a JSON object between markers: DeepSeek V3, R1 and V3.1, Kimi K2, gpt-oss."""

import re

from gateway.openai_api.tools.json_objects import arguments
from gateway.openai_api.tools.json_text import blank, one_of
from gateway.openai_api.tools.reader import Broken, CallReader, Reading, Writing

_LONGEST = 512  # characters between two markers
_NUMBER = re.compile(r":\d+")
_CLOSER = re.compile(r"```|<[^<>]+>")


class Marked:
    """Text between the marker of the calls and that of the first call is dropped; end markers may be missing."""

    at_line: tuple[str, ...] = ()

    def __init__(self, writing: Writing) -> None:
        """`writing`: in a section, a call begins with one of its tokens."""
        self._writing, self._begins = writing, writing.before.strip()
        tokens = (each for each in writing.tokens if self._begins and writing.begin.startswith(each))
        self._begin = next(tokens, writing.begin)
        self._prefix = writing.begin.removeprefix(self._begin)  # of the name; it may be missing
        self._middle, self._ends = writing.middle.strip(), writing.after.strip()
        self._closers = _CLOSER.findall(writing.end)
        self._behind = tuple(each for each in (*self._closers, self._begin, self._ends) if each)
        self.anywhere = tuple(each for each in (self._begins, self._begin) if each)

    def read(self, opener: str, calls: CallReader) -> Reading[str]:
        if opener == self._begins and (yield from _up_to(self._begin, self._ends)).endswith(self._ends):
            return ""
        behind: str | None
        while True:
            head = (yield from _up_to(self._middle)).removesuffix(self._middle)
            name = head.strip().removeprefix(self._prefix)
            if self._writing.number and (number := _NUMBER.search(name)) is not None:
                name = name[: number.start()]
            if name not in calls.tools:
                raise Broken
            calls.begin(name)
            c = yield from blank()
            if c and any(each.startswith(c) for each in self._closers):  # no arguments at all
                calls.grow("{}")
                behind = c
            else:
                behind = yield from arguments(c, calls.grow)
            calls.end()
            found: str | None = ""
            while found is not None and found != self._begin:
                found, other = yield from one_of(self._behind, behind)
                behind = None
                if found in (None, self._ends):
                    return other

    def writing(self) -> Writing:
        return self._writing


def _up_to(*markers: str) -> Reading[str]:
    """Read a text up to one of these markers, and that marker."""
    read = ""
    while not read.endswith(markers):
        c = yield None
        if not c or len(read) > _LONGEST:
            raise Broken
        read += c
    return read
