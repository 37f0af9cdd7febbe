"""Before a run is measured: which endpoints answer, which cases they take, how long prompts are."""

import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from lab.bench.cases.case import Case, Prompt, Traced
from lab.bench.cases.lengths import characters_for
from lab.bench.cases.reading import LoadedCase
from lab.bench.endpoint.client import EndpointClient
from lab.bench.endpoint.counting import TokenCounter
from lab.bench.endpoint.probing import chosen_api, probe
from lab.bench.endpoint.requests import Abilities
from lab.bench.endpoint.side import Side
from lab.bench.errors import BadBench, BadSide
from lab.bench.load.jobs import Fitted, PreparedCase, jobs_of
from lab.bench.meters.machine import machine
from lab.bench.options import BenchOptions
from lab.bench.records import CaseRecord, Interleaving, Run
from specpair.extras import installed_version

_SAMPLE = 256  # tokens of a text by which the characters of a token are measured, for the lengths of a trace
Note = Callable[[str], None]


class ProbedSide(NamedTuple):
    """A side that answers, and what it takes."""

    side: Side
    client: EndpointClient
    abilities: Abilities


async def probed(sides: Sequence[Side], timeout: float, stack: AsyncExitStack, note: Note) -> list[ProbedSide]:
    """The sides that answer; their clients are closed with `stack`. Raises BadSide.

    `note`: is told which sides are left out.
    """
    found = []
    for side in sides:
        client = EndpointClient(side, timeout=timeout)
        stack.push_async_callback(client.close)
        abilities = await probe(side, client)
        if abilities is None:
            note(f"{side.url} has no mode {side.name}: it is left out")
        else:
            found.append(ProbedSide(side, client, abilities))
    if not found:
        raise BadSide("no side is left: name another endpoint with --side")
    return found


async def prepared(
    cases: Sequence[LoadedCase], sides: Sequence[ProbedSide], note: Note, *, all_needed: bool
) -> list[tuple[LoadedCase, PreparedCase]]:
    """The cases that can be run on all sides, and how. Raises BadSide.

    `all_needed`: whether a case that a side cannot run is an error; else it is left out, and `note` is told.
    """
    found = []
    for loaded in cases:
        try:
            found.append((loaded, await _prepared(loaded, sides)))
        except BadSide as error:
            if all_needed:
                raise
            note(f"left out: {error}")
    if not found:
        raise BadBench("no case is left that all sides can run: choose other cases, or other sides")
    return found


async def _prepared(loaded: LoadedCase, sides: Sequence[ProbedSide]) -> PreparedCase:
    case = loaded.case
    api = chosen_api(case, [(each.side, each.abilities) for each in sides])
    side, client, abilities = sides[0]  # all are asked the same texts
    counter = TokenCounter(side, client, abilities, case, api)
    fitted = [await _fitted(case, prompt, counter) for prompt in case.prompts]
    return PreparedCase(case=case, api=api, jobs=jobs_of(case, loaded.trace, fitted), trace=tuple(loaded.trace))


async def _fitted(case: Case, prompt: Prompt, counter: TokenCounter) -> Fitted | None:
    takes_lengths = isinstance(case.arrival, Traced) and case.arrival.trace.lengths
    wanted = case.input_tokens or (_SAMPLE if takes_lengths else None)
    if wanted is None or prompt.text is None:
        return None

    async def count(characters: int) -> int:
        return await counter.count(prompt.cut_to(characters))

    return Fitted(await characters_for(wanted, count), wanted)


def described(
    options: BenchOptions,
    asked: dict[str, Any],
    cases: Sequence[tuple[LoadedCase, PreparedCase]],
    sides: Sequence[ProbedSide],
    now: Callable[[], float] = time.time,
) -> Run:
    """The record of a new run, which begins now.

    `asked`: what makes it the same run as another.
    """
    begun = now()
    return Run(
        sides=tuple(each.side.as_record(each.abilities.model, each.abilities.server) for each in sides),
        cases=tuple(_case_record(loaded, each) for loaded, each in cases),
        repetitions=options.repetitions,
        warm_up=options.warm_up,
        interleaving=cast(Interleaving, options.interleave),
        seed=options.seed,
        begun=datetime.fromtimestamp(begun, UTC).isoformat(timespec="seconds"),
        begun_unix=begun,
        options={"timeout": options.timeout, "texts": options.texts, "asked": asked},
        machine=machine(),
        version=installed_version(),
    )


def asked_of(options: BenchOptions, sides: Sequence[Side], cases: Sequence[LoadedCase]) -> dict[str, Any]:
    """What was asked for, in JSON: two commands with the same are of one run."""
    return {
        "sides": [
            {"name": each.name, "url": each.url, "model": each.model, "extra": each.extra, "price": each.price_per_hour}
            for each in sides
        ],
        "cases": [
            {"case": each.case.model_dump(mode="json", exclude={"prompts"}), "prompts": each.prompts_hash}
            for each in cases
        ],
        "repetitions": options.repetitions,
        "warm_up": options.warm_up,
        "interleave": options.interleave,
        "seed": options.seed,
        "texts": options.texts,
    }


def _case_record(loaded: LoadedCase, prepared: PreparedCase) -> CaseRecord:
    case = loaded.case
    arrival = {"closed": {}} if case.arrival == "closed" else case.arrival.model_dump()
    return CaseRecord(
        name=case.name,
        group=case.group,
        description=case.description,
        requests=sum(job.requests for job in prepared.jobs),
        concurrency=case.most_at_once,
        input_tokens=case.input_tokens,
        output_tokens=case.output_tokens,
        arrival=arrival,
        sampling=case.sampling.fields(),
        slo=case.slo.as_slo(),
        prompts_hash=loaded.prompts_hash,
    )
