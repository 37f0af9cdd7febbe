"""All that is made of a run's records, as plain data: what the reports show and the JSON file holds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lab.bench.errors import BadSide
from lab.bench.records import CaseRecord, Results, Run, Stretch
from lab.bench.statistics.comparison import Comparison, Sample, compare
from lab.bench.statistics.scores import Score, ScoreComparison, compare_scores, score
from lab.bench.statistics.summary import Summary, summarise
from lab.bench.statistics.texts import Equality, equality
from specpair.command_line.given_values import advice

FORMAT = "specpair-bench-report-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """A run in figures. `baseline`: the side that the others are compared with.

    `complete`: whether every request of the run was made; if not, the figures are of those that were.
    """

    run: Run
    complete: bool
    baseline: str
    summaries: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    equalities: tuple[Equality, ...]
    scores: tuple[Score, ...]
    score_comparisons: tuple[ScoreComparison, ...]
    format: str = FORMAT

    def summaries_of(self, case: CaseRecord) -> list[Summary]:
        """Those of a case, in the order of the sides."""
        return [each for each in self.summaries if each.case == case.name]

    def comparison(self, case: str, side: str, measure: str) -> Comparison | None:
        """That of a side in a case by the measure with the key `measure`; None: there is none."""
        wanted = (case, side, measure)
        return next((each for each in self.comparisons if (each.case, each.side, each.measure) == wanted), None)


def analyse(results: Results, baseline: str | None = None) -> Analysis:
    """Make all figures of a run. The order of its records does not matter.

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
            summarise(case, side, samples[case.name, side.name].requests, samples[case.name, side.name].stretches)
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
        scores=tuple(
            scored
            for case in run.cases
            for side in names
            if (scored := score(case.name, side, samples[case.name, side].requests)) is not None
        ),
        score_comparisons=tuple(
            split
            for case, one, other in pairs
            if (split := compare_scores(case.name, one.side, other.side, one.requests, other.requests)) is not None
        ),
    )


def _sample(results: Results, case: str, side: str) -> Sample:
    requests = [each for each in results.requests if (each.case, each.side) == (case, side)]
    stretches: Sequence[Stretch] = [each for each in results.stretches if (each.case, each.side) == (case, side)]
    if results.run.interleaving == "together":  # the meters counted all sides at once
        stretches = [replace(each, energy_joules={}) for each in stretches]
    return Sample(
        side, sorted(requests, key=lambda each: each.pairing), sorted(stretches, key=lambda each: each.number)
    )
