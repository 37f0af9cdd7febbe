"""Reads settings as users write them: lists of numbers, paths, names. Suggests the name for a misspelt one."""

import difflib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

# The least share of letters that a misspelt name has in common with the one it means, in their order; in a name of at
# most four letters, one mistake is a greater share.
_ALIKE, _ALIKE_IF_SHORT = 0.75, 0.66


class SettingsError(Exception):
    """A setting is unknown or has a bad value. The message names its flag, its variable, or its file, table and key."""


def ascending(value: str | Sequence[int]) -> tuple[int, ...]:
    """The numbers of `value`: a text with commas, or the numbers themselves. Raises ValueError."""
    items = value.split(",") if isinstance(value, str) else value
    texts = [str(item).strip() for item in items]
    numbers = tuple(int(text) for text in texts if text.isdecimal())
    if not numbers or len(numbers) < len(texts) or numbers[0] < 1 or list(numbers) != sorted(set(numbers)):
        raise ValueError(f"{value!r} is not a list of ascending numbers such as 1,4,16")
    return numbers


def home(text: str) -> Path:
    """The path, with `~` as the home folder: a shell leaves it as it is in `--model=~/x.gguf` and in quotes."""
    return Path(os.path.expanduser(text))


def path(text: str) -> Path:
    """The path that a text names. Raises ValueError for an empty text: it would mean the current folder."""
    if not text:
        raise ValueError("is empty: name a file or a folder")
    return home(text)


def advice(name: str, known: Iterable[str], *, shown: Callable[[str], str] = str, listed: bool = True) -> str:
    """The advice that ends an error about a name that is not in `known`.

    `; did you mean NAME?` where one of them is close, else `; choose one of A, B, C`.
    `shown`: how a known name is written.
    `listed`: whether all may be listed; if not, the end is empty where none is close.
    """
    names = list(known)
    meant = nearest(name, names)
    if meant is not None:
        return f"; did you mean {shown(meant)}?"
    return f"; choose one of {', '.join(map(shown, names))}" if listed else ""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name in `known` that is closest to `name`; None if no name is close. Ignores leading dashes and case.

    A known name is close if few typing mistakes separate the two, or if `name` is its beginning or a whole
    word of it (`temp` for `temperature`, `key` for `api-key`). The name with the fewest mistakes wins, else the
    shortest one.
    """
    asked, plain = _plain(name), {_plain(each): each for each in known}
    if alike := difflib.get_close_matches(asked, plain, 1, _ALIKE_IF_SHORT if len(asked) < 5 else _ALIKE):
        return plain[alike[0]]
    if len(asked) < 3:
        return None
    holding = [each for each in plain if each.startswith(asked) or asked in each.split("-")]
    return plain[min(holding, key=len)] if holding else None


def _plain(name: str) -> str:
    return re.sub("[_-]+", "-", name.strip("-_").lower())
