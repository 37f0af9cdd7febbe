"""Before a run is measured: which endpoints answer, which cases they take, how long prompts are, on which machine."""

import os
import platform
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from backends.machine import processor, total_bytes
from lab.bench.asking import Abilities, body_of
from lab.bench.case import Api, Case, Prompt, Traced
from lab.bench.case_files import LoadedCase
from lab.bench.cli.command_line import BenchOptions
from lab.bench.client import EndpointClient
from lab.bench.errors import BadBench, BadSide
from lab.bench.jobs import Fitted, PreparedCase, jobs_of
from lab.bench.probing import chosen_api, probe
from lab.bench.records import CaseRecord, Interleaving, Run
from lab.bench.sides import Side
from specpair.extras import installed_version

_MOST_COUNTS = 12
_CHARACTERS = 4  # of a token, as a first guess


async def characters_for(tokens: int, count: Callable[[int], Awaitable[int]]) -> int:
    """The length in characters at which a text has `tokens` tokens, or as little less as was found with 12 counts.

    `count`: the tokens of the text of a length; they grow with it.

    1 where even that is too long, as in a chat whose template is long.
    """
    fits, fails = 0, None  # the longest that is known to fit, the shortest that is known not to
    at, before = _CHARACTERS * tokens, (0, 0)
    for _ in range(_MOST_COUNTS):
        found = await count(at)
        if found > tokens:
            fails = at
        else:
            fits = at
        if found == tokens or fails == fits + 1:
            break
        # What a chat's template adds does not grow with the text: the second guess is by the line through two counts.
        rise = found - before[1]
        a_token = (at - before[0]) / rise if rise else at / max(1, found)
        guess = at + round((tokens - found) * a_token)
        before = at, found
        beyond = fails if fails is not None else max(guess, fits + 1) + 1
        at = guess if fits < guess < beyond else (fits + beyond) // 2
    return max(fits, 1)


def machine() -> dict[str, str]:
    """`cpu`, `cores`, `memory_gib`, `system`, `python`; without those that the system does not tell."""
    memory = ""
    with suppress(ValueError, OSError, AttributeError):  # where there is no sysconf, or it lacks these names
        memory = f"{total_bytes() / 2**30:.1f}"
    found = {
        "cpu": processor(),
        "cores": str(os.cpu_count() or ""),
        "memory_gib": memory,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    return {name: value for name, value in found.items() if value}


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

    def count(text: str) -> Awaitable[int]:
        return _tokens_in(text, case, api, sides[0])  # all are asked the same texts

    fitted = [await _fitted(case, prompt, count) for prompt in case.prompts]
    return PreparedCase(case=case, api=api, jobs=jobs_of(case, loaded.trace, fitted), trace=tuple(loaded.trace))


async def _fitted(case: Case, prompt: Prompt, count: Callable[[str], Awaitable[int]]) -> Fitted | None:
    takes_lengths = isinstance(case.arrival, Traced) and case.arrival.trace.lengths
    wanted = case.input_tokens or (_SAMPLE if takes_lengths else None)
    if wanted is None or prompt.text is None:
        return None
    return Fitted(await characters_for(wanted, lambda characters: count(prompt.cut_to(characters))), wanted)


async def _tokens_in(text: str, case: Case, api: Api, asked: ProbedSide) -> int:
    """The tokens that a side reads in a prompt of this text, with those of a chat's template. Raises BadSide."""
    side, client, abilities = asked
    body = body_of(case, Prompt(text=text), abilities, side.extra, api=api, text=text, max_tokens=1, seed=0)
    exchange = await client.ask(api, body)
    count: Any = (exchange.reply.usage or {}).get("prompt_tokens")
    if exchange.failure is not None or type(count) is not int:
        why = exchange.failure.message if exchange.failure is not None else "it counts no tokens of prompts"
        raise BadSide(f"{side.name} does not count the prompt of the case {case.name}: {why}")
    return count


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
