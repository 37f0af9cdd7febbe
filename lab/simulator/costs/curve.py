"""Lines between measured points, which never fall."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

Points = Mapping[float, float]


class Curve:
    """Values over one axis: linear between points, level before the first, on in the last line beyond the last.

    A value that is less than one before it counts as that one: noise does not make more work cheaper.
    """

    def __init__(self, points: Points) -> None:
        """`points`: values by their places, one at least."""
        self._at = sorted(points)
        self._values = list(accumulate((points[place] for place in self._at), max))

    def at(self, place: float) -> float:
        at, values = self._at, self._values
        if place <= at[0] or len(at) == 1:
            return values[0]
        right = min(bisect_right(at, place), len(at) - 1)
        slope = (values[right] - values[right - 1]) / (at[right] - at[right - 1])
        return values[right - 1] + slope * (place - at[right - 1])


class Plane:
    """Values over two axes: a curve over the second at each place of the first, and a curve across them."""

    def __init__(self, points: Mapping[tuple[float, float], float]) -> None:
        rows: dict[float, dict[float, float]] = {}
        for (first, second), value in points.items():
            rows.setdefault(first, {})[second] = value
        self._curves = {first: Curve(row) for first, row in rows.items()}

    def at(self, first: float, second: float) -> float:
        return Curve({place: curve.at(second) for place, curve in self._curves.items()}).at(first)
