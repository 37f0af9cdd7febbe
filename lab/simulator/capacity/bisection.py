"""The bisection: which counts are tried, and what follows from those that were. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Wanted = Literal["most", "least"]


@dataclass(frozen=True, slots=True)
class Range:
    """Where the bisection looks. `wanted`: the most that holds, or the least.

    `precision`: it ends where a count that holds and one that breaks differ by so large a share of the smaller one, or
    by 1.
    """

    start: int
    floor: int
    ceiling: int
    wanted: Wanted = "most"
    precision: float = 0.0


@dataclass(frozen=True, slots=True)
class Boundary:
    """What counts that were tried say. `inside`: the best one that holds; None: none does. `outside`: the next one
    beyond it, or of all, that breaks; None: none does.

    `against`: counts that break, though a greater one holds (with "least", a smaller one): each with the nearest such.
    """

    inside: int | None
    outside: int | None
    against: tuple[tuple[int, int], ...]


def bisect(holds: Callable[[int], bool], within: Range, checks: int = 0) -> None:
    """Try counts until the boundary is known: doubled or halved from `start` on until the promise breaks or holds,
    then those in the middle.

    `holds`: tries a count, and keeps what came; it is called once for each.
    `checks`: as many counts are tried behind that which should hold, in the widest gaps between those that do.
    """
    held: list[int] = []

    def tried(count: int) -> bool:
        result = holds(count)
        if result:
            held.append(count)
        return result

    inside, outside = _bracket(tried, within)
    if inside is None:
        return
    while outside is not None and abs(outside - inside) > max(1.0, within.precision * min(inside, outside)):
        middle = (inside + outside) // 2
        if tried(middle):
            inside = middle
        else:
            outside = middle
    seen = {*held, within.floor} if within.wanted == "most" else {*held}
    for _ in range(checks):
        gap, low, high = max(((high - low, low, high) for low, high in pairwise(sorted(seen))), default=(0, 0, 0))
        if gap < 2:
            return
        seen.add((low + high) // 2)
        tried((low + high) // 2)


def boundary(tried: Mapping[int, bool], wanted: Wanted) -> Boundary:
    """What follows from counts and whether they hold."""
    sign = 1 if wanted == "most" else -1  # so that greater is harder
    held = sorted(sign * count for count, holds in tried.items() if holds)
    broken = sorted(sign * count for count, holds in tried.items() if not holds)
    inside = held[-1] if held else None
    outside = next((each for each in broken if inside is None or each > inside), None)
    against = tuple(
        (sign * each, sign * next(other for other in held if other > each))
        for each in broken
        if held and each < held[-1]
    )
    return Boundary(None if inside is None else sign * inside, None if outside is None else sign * outside, against)


def _bracket(tried: Callable[[int], bool], within: Range) -> tuple[int | None, int | None]:
    """A count that holds and one that breaks; None: there is none up to the end of the range."""
    inside: int | None = None
    outside: int | None = None
    count = min(max(within.start, within.floor), within.ceiling)
    while inside is None or outside is None:
        if holds := tried(count):
            inside = count
        else:
            outside = count
        grows = holds is (within.wanted == "most")
        following = min(2 * count, within.ceiling) if grows else max(count // 2, within.floor)
        if following == count:
            break
        count = following
    return inside, outside
