"""Finds the known name that a misspelt name most likely means, and says what an error advises."""

import difflib
import re
from collections.abc import Callable, Iterable

# The least share of letters that a misspelt name has in common with the one it means, in their order; in a name of at
# most four letters, one mistake is a greater share.
_ALIKE, _ALIKE_IF_SHORT = 0.75, 0.66


def advice(name: str, known: Iterable[str], *, shown: Callable[[str], str] = str, listed: bool = True) -> str:
    """The end of an error's sentence about a name that is none of `known`.

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
    """The one of `known` that is closest to `name`, or None if none is close. Ignores leading dashes and case.

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
