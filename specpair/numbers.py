"""Formats counts and sizes, computes quantiles, and converts times: milliseconds on the wire, seconds inside."""

from collections.abc import Iterable, Sequence
from math import floor
from typing import overload

_DIGITS = 3  # of milliseconds, behind the point


def counted(count: int, one: str, several: str | None = None) -> str:
    """`1 token`, `2 tokens`. `several`: the plural, where it is not `one` with an s."""
    return f"{count} {one}" if count == 1 else f"{count} {several or one + 's'}"


def sized(count: float) -> str:
    """A number of bytes, as `4.68 GB` or `12.3 MB`."""
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a `share` (0 to 1) of `values` lies.

    `values`: at least one, in any order.

    Interpolates linearly between two values, like `statistics.quantiles` with method "inclusive" (type 7 of Hyndman and
    Fan, "Sample quantiles in statistical packages", 1996).
    """
    ordered = sorted(values)
    low, part = rank(len(ordered), share)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + part * (ordered[high] - ordered[low])


def rank(count: int, share: float) -> tuple[int, float]:
    """The rank from 0 of a quantile among `count` sorted values, and the fraction (0 to 1) towards the next value."""
    at = share * (count - 1)
    return int(at), at - int(at)


@overload
def milliseconds(seconds: float) -> float: ...
@overload
def milliseconds(seconds: float | None) -> float | None: ...
def milliseconds(seconds: float | None) -> float | None:
    """A time in the unit of the wire; None: unknown."""
    return None if seconds is None else round(1e3 * seconds, _DIGITS)


@overload
def seconds(milliseconds: float) -> float: ...
@overload
def seconds(milliseconds: float | None) -> float | None: ...
def seconds(milliseconds: float | None) -> float | None:
    """A time from the wire; None: unknown."""
    return None if milliseconds is None else milliseconds / 1e3


def percentages(parts: Iterable[float]) -> list[int]:
    """The share of each part in their sum, in whole percent: those with the largest fractions are rounded up, so that
    they add up to 100. All are 0 if the sum is 0."""
    values = list(parts)
    total = sum(values)
    if total <= 0:
        return [0] * len(values)
    exact = [100 * value / total for value in values]
    whole = [floor(value) for value in exact]
    most_missing = sorted(range(len(values)), key=lambda at: (whole[at] - exact[at], at))
    for at in most_missing[: 100 - sum(whole)]:
        whole[at] += 1
    return whole
