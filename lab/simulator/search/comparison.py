"""The candidates of a search, all combinations of the values of keys, and their results.

Pure but for files that keys name.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import Keys, Share
from lab.simulator.configuration.reading import BadConfiguration, read
from lab.simulator.results.measures import MEASURES, Estimate, RunMeasure, estimate
from lab.simulator.results.replications import EvaluateAll, Values
from lab.user_files import Loader, first_mistake, keys_of
from specpair.command_line.setting_values import advice
from specpair.command_line.table import Table, harmless

ATTAINMENT = "slo_attainment"
VARIANT = "variant"  # the name of the choice between sets of values

Changes = dict[str, Any]  # values by the paths of their keys


class BadSearch(ValueError):
    """A search cannot run. The message has the reason and the remedy."""


class SearchKeys(Keys):
    """A search. Keys of the configuration are named by their paths, such as `devices.drafters[laptop].count`."""

    space: dict[str, list[Any]] = Field(default_factory=dict)
    """the values that keys may have, by path"""
    variants: dict[str, Changes] = Field(default_factory=dict)
    """sets of values that belong together, by name; a candidate has one of them"""
    objectives: list[str] = Field(default_factory=lambda: ["throughput_tps", "ttft_p95_ms"])
    """measures, by which candidates are compared"""
    attainment: Share | None = None
    """the least share of requests that keep the bounds of `slo`; null: any"""
    replications: Annotated[int, Field(ge=2)] = 5
    """of each candidate"""

    def choices(self) -> list[dict[str, Any]]:
        """All combinations, by column, in order. Raises BadSearch if nothing varies, or a key varies twice."""
        if not self.space and not self.variants:
            raise BadSearch("nothing varies: give --vary KEY=VALUE,VALUE or a file with the key space")
        for key, values in self.space.items():
            if not values or any(value == other for value, other in itertools.combinations(values, 2)):
                raise BadSearch(f"space: {key} has {'a value twice' if values else 'no values'}")
            owner = next((name for name, changes in self.variants.items() if key in changes), None)
            if owner is not None:
                raise BadSearch(f"space: {key} varies by itself and in the variant {owner!r}: leave one out")
        varied = ({VARIANT: [*self.variants]} if self.variants else {}) | self.space
        return [dict(zip(varied, each, strict=True)) for each in itertools.product(*varied.values())]

    def changes(self, choice: Mapping[str, Any]) -> Changes:
        """The values of the keys in a combination."""
        own = {key: value for key, value in choice.items() if key != VARIANT}
        return (self.variants[choice[VARIANT]] if self.variants else {}) | own

    def goals(self) -> list[RunMeasure]:
        """The objectives. Raises BadSearch for an unknown measure, or a measure without a better direction."""
        if not self.objectives:
            raise BadSearch("objectives: name at least one measure")
        aims = [each.name for each in MEASURES.values() if each.better]
        for name in self.objectives:
            if name not in MEASURES:
                raise BadSearch(f"objectives: no measure {name!r}{advice(name, aims)}")
            if name not in aims:
                raise BadSearch(f"objectives: {name} is neither better if it is more nor if it is less")
        if len(set(self.objectives)) != len(self.objectives):
            raise BadSearch("objectives: a measure is named twice")
        return [MEASURES[name] for name in self.objectives]


@dataclass
class SearchCandidate:
    """A configuration that is compared, with its replications so far.

    `choice`: what tells it from the others, by column.
    """

    number: int  # the first is 1
    choice: Mapping[str, Any]
    configuration: Configuration
    replications: list[Values] = field(default_factory=list)

    def values(self, name: str) -> list[float]:
        """The values of a measure, by replication; not a number: no value."""
        return [each[name] for each in self.replications]

    def estimate(self, name: str) -> Estimate:
        """A measure's mean, with its interval."""
        return MEASURES[name].estimate(self.values(name))


def candidates(keys: SearchKeys, file: Path, given: Sequence[str] = ()) -> tuple[list[SearchCandidate], list[str]]:
    """The combinations that can run, and a complaint for each of the others.

    `file`: the configuration that is varied. `given`: of its keys, as KEY=VALUE.

    Raises BadSearch, and BadConfiguration for the file itself.
    """
    read(file, given)
    found, complaints = list[SearchCandidate](), list[str]()
    for choice in keys.choices():
        try:
            configuration = varied(file, given, keys.changes(choice))
        except BadConfiguration as error:
            complaints.append(f"{label(choice)}: {error}")
        else:
            found.append(SearchCandidate(len(found) + 1, choice, configuration))
    return found, complaints


def varied(file: Path, given: Sequence[str], changes: Changes) -> Configuration:
    """A configuration with changes. `given`: keys that are replaced first, as KEY=VALUE. Raises BadConfiguration."""
    return read(file, [*given, *overrides(changes)])


def overrides(changes: Changes) -> list[str]:
    """Changes, each as KEY=VALUE."""
    return [f"{key}={shown(value)}" for key, value in changes.items()]


def label(choice: Mapping[str, Any]) -> str:
    """A combination in words."""
    return ", ".join(f"{key}={shown(value)}" for key, value in choice.items())


def shown(value: Any) -> str:
    """A value as written in a file, on one line."""
    return str(yaml.safe_dump(value, default_flow_style=True, width=10_000)).removesuffix("\n").removesuffix("\n...")


def parse_vary(given: str) -> tuple[str, list[Any]]:
    """A key and its values, of a flag such as `router=jsq,wjsq`. Raises BadSearch."""
    key, equals, text = given.partition("=")
    try:
        values = yaml.load(f"[{text}]", Loader) if equals else []  # noqa: S506
    except yaml.YAMLError:
        values = []
    if not key or not isinstance(values, list) or not values:
        raise BadSearch(f"--vary: {given!r} is no key with its values: write it as in router=jsq,wjsq")
    return key.strip(), values


def read_search(path: Path) -> SearchKeys:
    """The search in a file. Raises BadSearch."""
    return checked(keys_of(path, BadSearch, "give it a key space"), str(path))


def checked(given: dict[str, Any], where: str) -> SearchKeys:
    """Keys with their values as a search. Raises BadSearch, whose message begins with `where`."""
    try:
        return SearchKeys.model_validate(given)
    except ValidationError as error:
        raise BadSearch(f"{where}: {first_mistake(error)}") from None


def run(several: Sequence[SearchCandidate], replications: int, evaluate: EvaluateAll) -> None:
    """Run candidates until each has the given number of replications.

    All have one before any has the next, so if it ends early, what came of them by then can be compared.
    """
    asked = [(each, number) for number in range(replications) for each in several]
    values = evaluate([(each.configuration, number) for each, number in asked])
    for (candidate, _), each in zip(asked, values, strict=True):
        candidate.replications.append(each)


class Comparison:
    """The results of candidates, each compared with the best in each objective.

    The best is that of those that have values in all replications and keep the `attainment`, by the means.
    """

    def __init__(
        self, several: Sequence[SearchCandidate], objectives: Sequence[RunMeasure], attainment: float | None = None
    ) -> None:
        """`attainment`: the least share of requests within `slo`, 0 to 1; None: any."""
        self._candidates, self._attainment = several, attainment
        self._measures = [*objectives]
        if attainment is not None and MEASURES[ATTAINMENT] not in objectives:
            self._measures.append(MEASURES[ATTAINMENT])
        within = [each for each in several if self._is_within(each)]
        self._best = {
            each: min(within, key=lambda candidate, each=each: _worth(candidate, each), default=None)  # type: ignore[misc]
            for each in objectives
        }

    def table(self) -> Table:
        """A line for each candidate: number, label, means with their 95 % intervals, replications.

        Behind each objective is what a candidate has more of it than the best, paired. The best in the first objective
        stands first, and those that do not keep the attainment last.
        """
        [first, *_] = self._best

        def cells(candidate: SearchCandidate) -> Iterator[str]:
            for measure in self._measures:
                yield measure.text(candidate.estimate(measure.name))
                if measure in self._best:
                    yield measure.text(self.from_best(candidate, measure), signed=True)

        ordered = sorted(self._candidates, key=lambda each: (not self._is_within(each), _worth(each, first)))
        rows = (
            (str(each.number), *map(shown, each.choice.values()), *cells(each), str(len(each.replications)))
            for each in ordered
        )
        measured = ((each.heading, *(["from the best"] if each in self._best else [])) for each in self._measures)
        return Table(("", *self._candidates[0].choice, *itertools.chain(*measured), "runs"), tuple(rows))

    def rows(self) -> Iterator[list[Any]]:
        """For a CSV file: the headings, then a row for each candidate with all measures, in their own order."""
        measures = [*self._candidates[0].replications[0]]
        gaps = [f"{each.name}_from_best" for each in self._best]
        named = [f"{name}{end}" for name in (*measures, *gaps) for end in ("", "_low", "_high")]
        yield ["candidate", *self._candidates[0].choice, "replications", *named]
        for each in self._candidates:
            found = [each.estimate(name) for name in measures]
            found += [self.from_best(each, objective) for objective in self._best]
            numbers = (value for of in found for value in (of.mean, of.low, of.high))
            cells = ["" if value is None or math.isnan(value) else repr(value) for value in numbers]
            choice = [harmless(shown(value)) for value in each.choice.values()]
            yield [each.number, *choice, len(each.replications), *cells]

    def from_best(self, candidate: SearchCandidate, objective: RunMeasure) -> Estimate:
        """How much more of an objective a candidate has than the best, over the replications that both have: what the
        two have in common by the same load drops out. Not a number for the best itself, and where there is none."""
        best = self._best[objective]
        if best is None or best is candidate:
            return Estimate(math.nan)
        pairs = zip(best.values(objective.name), candidate.values(objective.name), strict=False)
        return estimate([other - one for one, other in pairs])

    def _is_within(self, candidate: SearchCandidate) -> bool:
        """Whether a candidate has values in all replications, and keeps the attainment in the mean."""
        if any(math.isnan(value) for each in self._measures for value in candidate.values(each.name)):
            return False
        return self._attainment is None or candidate.estimate(ATTAINMENT).mean >= self._attainment


def _worth(candidate: SearchCandidate, objective: RunMeasure) -> float:
    """A candidate's mean of an objective, signed so that less is better."""
    return (-1 if objective.better == "more" else 1) * candidate.estimate(objective.name).mean
