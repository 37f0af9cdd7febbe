"""The time of a forward pass from measured times: the files of `lab.benchmarks.verify_curve`.

A cell is a pass over so many rows (sequences) of so many new tokens each, at so many tokens of context. A pass is read
as one of its number of sequences, of their mean number of new tokens and of their mean context.

Between cells, times are linear in the tokens a row, then in the rows, then in the context. Noise may have made a larger
pass cheaper than a smaller one: then it counts as dear as the smaller one, so that times never fall as a pass grows.
Below the smallest cell, its time counts. Beyond the largest, the last two go on in a line, up to `REACH` times the
largest number of tokens, of rows and of context that was measured: CostUnknown beyond that.
A table of one context says nothing of others, and has the same times for all.

A prompt is a pass of one row with many tokens: measure it with a great `--drafts` and `--rows 1`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError

from lab.simulator.costs.cost import BadCost, CostUnknown, SequencePass
from lab.user_files import first_mistake, text_of

Curve = Sequence[tuple[float, float]]  # values by ascending places, one at least


def between(curve: Curve, place: float) -> float:
    """The value at x: linear between points, constant before the first, extrapolated linearly beyond the last.

    A value that is less than one before it counts as that one: noise does not make more work cheaper.
    """
    at, values = [each for each, _ in curve], [*accumulate((value for _, value in curve), max)]
    if place <= at[0] or len(at) == 1:
        return values[0]
    right = min(bisect_right(at, place), len(at) - 1)
    slope = (values[right] - values[right - 1]) / (at[right] - at[right - 1])
    return values[right - 1] + slope * (place - at[right - 1])


REACH = 4.0  # times the largest pass that was measured


class MeasuredPass(NamedTuple):
    """A pass over `rows` sequences of `tokens` new tokens each, and its time."""

    rows: int
    tokens: int
    seconds: float
    context: int | None = None  # tokens that each sequence held before; None: it was not written down


class PassTable:
    """The cost of passes on an engine whose passes were measured."""

    def __init__(self, cells: Iterable[MeasuredPass], name: str = "the table of costs") -> None:
        """Raises BadCost for no cells, for a duplicate cell, and for a mix of known and unknown contexts."""
        self._name = name
        measured = list(cells)
        if not measured:
            raise BadCost("a table of costs needs at least one measured pass")
        contexts = {each.context for each in measured}
        if None in contexts and len(contexts) > 1:
            raise BadCost("some cells say at which context they were measured, and others do not: measure those again")
        self._curves: dict[int, dict[int, list[tuple[float, float]]]] = {}  # by context and rows: seconds by tokens
        for context, rows, tokens, seconds in sorted((each.context or 0, *each[:3]) for each in measured):
            curve = self._curves.setdefault(context, {}).setdefault(rows, [])
            if curve and curve[-1][0] == tokens:
                raise BadCost(f"{rows} rows of {tokens} tokens were measured twice at context {context}")
            curve.append((tokens, seconds))
        self._tokens = max(each.rows * each.tokens for each in measured)
        self._rows = max(each.rows for each in measured)
        self._context = max(each.context or 0 for each in measured) if len(contexts) > 1 else None

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        tokens = sum(new for new, _ in sequences)
        if not tokens:
            return 0.0
        rows = len(sequences)
        context = sum(cached for _, cached in sequences) / rows
        self._refuse_beyond("tokens", tokens, self._tokens)
        self._refuse_beyond("rows", rows, self._rows)
        if self._context is not None:
            self._refuse_beyond("tokens of context", context, self._context)
        by_context = [
            (held, between([(number, between(curve, tokens / rows)) for number, curve in curves.items()], rows))
            for held, curves in self._curves.items()
        ]
        return between(by_context, context)

    def _refuse_beyond(self, what: str, asked: float, measured: int) -> None:
        if asked > REACH * measured:
            raise CostUnknown(
                f"{self._name}: a pass over {asked:g} {what} is beyond {REACH:g} times the {measured} measured there: "
                "measure larger ones with lab.benchmarks.verify_curve, --rows, --drafts and --context-held"
            )


class _Cell(BaseModel):
    rows: PositiveInt
    drafts: NonNegativeInt
    ms: PositiveFloat


class _CurveFile(BaseModel):
    """The required fields of a file of `lab.benchmarks.verify_curve`; older files have no context."""

    model_config = ConfigDict(extra="ignore")

    context: NonNegativeInt | None = None
    cells: list[_Cell] = Field(min_length=1)


def read_table(*paths: Path) -> PassTable:
    """The table of one file of `lab.benchmarks.verify_curve`, or of several at different contexts.

    Raises BadCost for a file that is none, with its name.
    """
    cells: list[MeasuredPass] = []
    for path in paths:
        try:
            given = _CurveFile.model_validate_json(text_of(path, BadCost))
        except ValidationError as error:
            what = first_mistake(error)
            raise BadCost(f"{path} is no file of lab.benchmarks.verify_curve: {what}") from None
        cells += (MeasuredPass(each.rows, each.drafts + 1, each.ms / 1e3, given.context) for each in given.cells)
    return PassTable(cells, ", ".join(map(str, paths)))
