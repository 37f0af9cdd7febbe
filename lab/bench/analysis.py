"""Analyses a run's records into plain data, which the reports show and the JSON file holds."""

from collections.abc import Sequence
from dataclasses import dataclass

from lab.bench.comparison import Comparison, Sample, compare
from lab.bench.errors import BadSide
from lab.bench.jobs import PreparedCase
from lab.bench.records import MeasuredRequest, Results, Run
from lab.bench.summary import Summary, summarise
from specpair.command_line.setting_values import advice

_SHOWN = 24  # characters of each text, from where they differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Equality:
    """How many requests of the same prompt and seed got the same text from both sides.

    `first`: the first pair that differs, by repetition and request: its prompt and seed, after how many characters, and
        how each text goes on there; None: all are equal.
    """

    case: str
    side: str
    baseline: str
    pairs: int
    equal: int
    first: str | None = None

    @property
    def sentence(self) -> str:
        """The equality as a sentence."""
        said = f"{self.equal} of {self.pairs} texts of {self.side} equal those of {self.baseline}, by prompt and seed"
        return said if self.first is None else f"{said}; the first that differs: {self.first}"


def equality(
    case: str, side: str, baseline: str, ones: Sequence[MeasuredRequest], others: Sequence[MeasuredRequest]
) -> Equality | None:
    """Compare the texts of paired requests that did not fail. None: no pair has texts."""
    theirs = {each.pairing: each for each in others if each.text_hash is not None and each.failure is None}
    pairs = [
        (each, theirs[each.pairing])
        for each in sorted(ones, key=lambda each: each.pairing)
        if each.text_hash is not None and each.failure is None and each.pairing in theirs
    ]
    if not pairs:
        return None
    differing = [(one, other) for one, other in pairs if one.text_hash != other.text_hash]
    return Equality(
        case=case,
        side=side,
        baseline=baseline,
        pairs=len(pairs),
        equal=len(pairs) - len(differing),
        first=_difference(*differing[0]) if differing else None,
    )


def _difference(one: MeasuredRequest, other: MeasuredRequest) -> str:
    said = f"prompt {one.prompt}, seed {one.seed}"
    if one.text is None or other.text is None:
        return f"{said} (the run keeps no texts)"
    pairs = enumerate(zip(one.text, other.text, strict=False))
    at = next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one.text), len(other.text)))
    mine, theirs = (repr(text[at : at + _SHOWN]) if text[at:] else "its end" for text in (one.text, other.text))
    return f"{said}, after {at} characters {mine} in place of {theirs}"


FORMAT = "specpair-bench-report-2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The numbers of a run. `baseline`: the side with which the others are compared.

    `complete`: whether every request of the run was made; if not, the figures are of those that were.
    """

    run: Run
    complete: bool
    baseline: str
    summaries: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    equalities: tuple[Equality, ...]
    format: str = FORMAT

    def summaries_of(self, case: PreparedCase) -> list[Summary]:
        """The summaries of a case, in the order of the sides."""
        return [each for each in self.summaries if each.case == case.name]

    def comparison(self, case: str, side: str, measure: str) -> Comparison | None:
        """The comparison of a side in a case by the measure with key `measure`; None: there is none."""
        wanted = (case, side, measure)
        return next((each for each in self.comparisons if (each.case, each.side, each.measure) == wanted), None)


def analyse(results: Results, baseline: str | None = None) -> Analysis:
    """Compute all numbers of a run. The order of its records does not matter.

    `baseline`: name of the side that others are compared with; None: the first. Raises BadSide if there is no such.
    """
    run = results.run
    names = [side.name for side in run.sides]
    if baseline is None:
        baseline = names[0]
    elif baseline not in names:
        raise BadSide(f"--baseline: no side is called {baseline!r}{advice(baseline, names)}")
    samples = {(case.name, side): _sample(results, case.name, side) for case in run.cases for side in names}
    others = [(case, side) for case in run.cases for side in names if side != baseline]
    pairs = [(case, samples[case.name, side], samples[case.name, baseline]) for case, side in others]
    return Analysis(
        run=run,
        complete=results.is_complete,
        baseline=baseline,
        summaries=tuple(
            summarise(case.case, side, samples[case.name, side.name].requests)
            for case in run.cases
            for side in run.sides
            if samples[case.name, side.name].requests
        ),
        comparisons=tuple(found for case, one, other in pairs for found in compare(case.name, one, other)),
        equalities=tuple(
            equal
            for case, one, other in pairs
            if (equal := equality(case.name, one.side, other.side, one.requests, other.requests)) is not None
        ),
    )


def _sample(results: Results, case: str, side: str) -> Sample:
    requests = [each for each in results.requests if (each.case, each.side) == (case, side)]
    return Sample(side, sorted(requests, key=lambda each: each.pairing))
