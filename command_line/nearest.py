"""The known name that a misspelt one was meant to be."""

import re
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `name` is close to, or None. Dashes at the beginning and case do not count.

    Close is: the beginning of it or a whole word of it (`temp` for `temperature`, `key` for `api-key`); or a few typing
    mistakes away: one in two to five letters, two in six to nine, and so on. Of several, the one with the fewest.
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
    """Letters to insert, leave out, replace, or swap with their neighbour."""
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
