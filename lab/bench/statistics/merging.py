"""Two runs as one, so that they can be compared as sides of one run are."""

from collections.abc import Sequence
from dataclasses import replace

from lab.bench.errors import BadRecords
from lab.bench.records import CaseRecord, Results


def merged(runs: Sequence[tuple[str, Results]]) -> Results:
    """The cases that all runs have with the same prompts, with the sides of each, under `NAME:SIDE`.

    `runs`: with the name of each, in no case the same. Sides of different runs did not take turns, so what changed on
    the machine between the runs is in the figures, too. Raises BadRecords if the runs have no case in common.
    """
    first = runs[0][1].run
    common = [case for case in first.cases if all(_same(case, each.run.cases) for _, each in runs[1:])]
    if not common:
        raise BadRecords("the runs have no case in common: a case is the same if its name and its prompts are")
    names = {case.name for case in common}
    sides, requests, stretches, offset = [], [], [], 0
    for name, each in runs:
        sides += [replace(side, name=f"{name}:{side.name}") for side in each.run.sides]
        requests += [
            replace(found, side=f"{name}:{found.side}", stretch=found.stretch + offset)
            for found in each.requests
            if found.case in names
        ]
        stretches += [
            replace(found, side=f"{name}:{found.side}", number=found.number + offset)
            for found in each.stretches
            if found.case in names
        ]
        offset += 1 + max([found.stretch for found in each.requests], default=0)
    run = replace(first, sides=tuple(sides), cases=tuple(common), interleaving="blocks")
    return Results(run, requests, stretches)


def _same(case: CaseRecord, others: Sequence[CaseRecord]) -> bool:
    return any((case.name, case.prompts_hash) == (other.name, other.prompts_hash) for other in others)
