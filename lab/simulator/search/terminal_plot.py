"""Points with numbers, in characters. Pure."""

import math
from collections.abc import Sequence

_WIDTH, _HEIGHT = 60, 16


def plotted(points: Sequence[tuple[float, float, str]], across: str, up: str) -> list[str]:
    """Lines of a plot whose axes begin at 0. `points`: across, up, and a label; the first ones are never covered, and
    those without values are left out."""
    points = [each for each in points if math.isfinite(each[0] + each[1])]
    most_x = max((x for x, _, _ in points), default=0.0) or 1.0
    most_y = max((y for _, y, _ in points), default=0.0) or 1.0
    cells = [[" "] * (_WIDTH + 6) for _ in range(_HEIGHT)]
    for x, y, label in points:
        row, column = round((_HEIGHT - 1) * (1 - y / most_y)), round((_WIDTH - 1) * x / most_x)
        place = range(column, column + len(label))
        if all(cells[row][each] == " " for each in place):
            for each, character in zip(place, label, strict=True):
                cells[row][each] = character
    lines = [f"{up}, up to {most_y:.4g}"]
    lines += ["  |" + "".join(row).rstrip() for row in cells]
    return [*lines, "  +" + "-" * _WIDTH, f"   {across}, up to {most_x:.4g}"]
