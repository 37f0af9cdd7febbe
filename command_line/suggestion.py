"""Finds the known name that a misspelt name most likely means."""

import re
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that is closest to `name`, or None if none is close. Ignores leading dashes and case.

    A known name is close if `name` is its beginning or a whole word of it (`temp` for `temperature`, `key` for
    `api-key`), or if few typing mistakes separate them: one for two to five letters, two for six to nine, and so on.
    The name with the fewest mistakes wins.
    """
    asked = _plain(name)
    ranked = sorted((_mistakes(asked, _plain(each)), at, each) for at, each in enumerate(known))
    if ranked and ranked[0][0] <= (len(asked) + 2) // 4:
        return ranked[0][2]
    if len(asked) < 3:
        return None
    return next(
        (each for _, _, each in ranked if _plain(each).startswith(asked) or asked in _plain(each).split("-")), None
    )


def _plain(name: str) -> str:
    return re.sub("[_-]+", "-", name.strip("-_").lower())


def _mistakes(one: str, other: str) -> int:
    """The edit distance: how many letters to insert, remove, replace, or swap with their neighbour."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        current = [row]
        for column, wanted in enumerate(other, 1):
            cost = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != wanted))
            swapped = row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == wanted
            current.append(min(cost, before[column - 2] + 1) if swapped else cost)
        before, last = last, current
    return last[-1]
