"""Long answers as a model writes them, in tokens of about four characters."""

import re
from collections.abc import Iterator, Sequence
from itertools import cycle, islice

TOKENS = 5000
_TOKEN = re.compile(r" ?[A-Za-z]{1,6}|\d{1,3}|\n| +|[^\sA-Za-z0-9]{1,2}")

_PROSE = (
    "A cache that is asked for the same key by several threads at once should compute its value once, and the others "
    "should wait for it rather than repeat the work. The simplest way is a lock for each key, kept in a dictionary of "
    "its own, which a second, short lock protects. When the value is ready, the lock of the key is dropped, so that "
    "the dictionary stays small. An error in the computation must reach everybody who waited, and must not be kept: "
    "the next caller tries anew, unless the error is one that would certainly come again. "
)
_LISTS = (
    "1. **Read** the file `settings.toml`, and check each value against its *range*.\n"
    "2. Build the index:\n   - one entry for each word, in lower case;\n   - the positions as differences.\n"
    "3. Write it to a file of another name, then rename that: [why](https://example.org/atomic-writes).\n\n"
    "| size | seconds | of which waiting |\n|---|---|---|\n| 1 MB | 0.4 | 0.1 |\n| 64 MB | 21.7 | 3.9 |\n\n"
    "> Nothing is removed from the index; what is gone is marked.\n\n"
)
_CODE = (
    "class Cache:\n"
    '    """Values by key; each is computed once, however many threads ask for it."""\n\n'
    "    def __init__(self, compute, most=1024):\n"
    "        self._compute, self._most = compute, most  # what makes a value, and how many are kept\n"
    "        self._values, self._locks, self._lock = {}, {}, threading.Lock()\n\n"
    "    def get(self, key: str) -> bytes:\n"
    "        with self._lock:\n"
    "            if key in self._values:\n"
    '                return self._values[key] + b"\\x00" * 16\n'
    "            lock = self._locks.setdefault(key, threading.Lock())\n"
    "        with lock:\n"
    "            return self._values.setdefault(key, self._compute(key, retries=3, timeout=2.5))\n\n\n"
)


def _mixed() -> Iterator[str]:
    for number in range(1, 1000):
        yield f"## {number}. A step\n\n{_PROSE}\n\n{_LISTS}```python\n{_CODE}```\n\n"


def tokens(parts: Iterator[str], count: int = TOKENS) -> Sequence[str]:
    """The first tokens of a text that is made of parts without end."""
    return list(islice((token for part in parts for token in _TOKEN.findall(part)), count))


ANSWERS = {
    "mixed": tokens(_mixed()),
    "one paragraph": tokens(cycle([_PROSE])),
    "one code block": tokens(part for part in ["```python\n", *[_CODE] * 1000]),
    "one line of code": tokens(part for part in ["```js\n", *["call(argument, 12, 'text'); "] * 5000]),
    "one list": tokens(part for part in [f"- {_PROSE[:140]}\n  - {_PROSE[140:260]}\n"] * 5000),
    "one table": tokens(
        part for part in ["| name | of it | number |\n|---|---|---|\n", *["| key | value | 12.5 |\n"] * 5000]
    ),
}
