"""Prepares a run: probes the endpoints, selects the cases that they accept, fits prompts, describes the machine."""

import json
import os
import platform
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from backends.machine import processor, total_bytes
from lab.bench.asking import ProbedSide, body_of, chosen_api, probe
from lab.bench.case import Api, Case, Prompt
from lab.bench.cli.command_line import BenchOptions
from lab.bench.client import EndpointClient
from lab.bench.errors import BadBench, BadSide
from lab.bench.jobs import Fitted, PreparedCase, jobs_of
from lab.bench.records import Run, Side
from specpair.extras import installed_version

_MOST_COUNTS = 12
_CHARACTERS = 4  # of a token, as a first guess
_SAMPLE = 256  # tokens of a text by which the characters of a token are measured, for the lengths of a trace
Note = Callable[[str], None]


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


async def probed(sides: Sequence[Side], timeout: float, stack: AsyncExitStack, note: Note) -> list[ProbedSide]:
    """The sides that answer; their clients are closed with `stack`. Raises BadSide.

    `note`: is told which sides are left out.
    """
    found = []
    for side in sides:
        client = EndpointClient(side, timeout=timeout)
        stack.push_async_callback(client.close)
        answers = await probe(side, client)
        if answers is None:
            note(f"{side.url} has no mode {side.name}: it is left out")
        else:
            found.append(answers)
    if not found:
        raise BadSide("no side is left: name another endpoint with --side")
    return found


async def prepared(
    cases: Sequence[Case], sides: Sequence[ProbedSide], note: Note, *, all_needed: bool
) -> list[PreparedCase]:
    """The cases that can run on all sides, prepared. Raises BadSide.

    `all_needed`: whether a case that a side cannot run is an error; else it is left out, and `note` is told.
    """
    found = []
    for case in cases:
        try:
            found.append(await _prepared(case, sides))
        except BadSide as error:
            if all_needed:
                raise
            note(f"left out: {error}")
    if not found:
        raise BadBench("no case is left that all sides can run: choose other cases, or other sides")
    return found


async def _prepared(case: Case, sides: Sequence[ProbedSide]) -> PreparedCase:
    api = chosen_api(case, sides)
    takes_lengths = case.arrival.trace is not None and case.arrival.trace.lengths
    wanted = case.input_tokens or (_SAMPLE if takes_lengths else None)

    async def fitted(prompt: Prompt) -> Fitted | None:
        if wanted is None or prompt.text is None:
            return None
        # All sides are asked the same texts, as long as the first one counts them.
        length = await characters_for(wanted, lambda at: _tokens_in(prompt.cut_to(at), case, api, sides[0]))
        return Fitted(length, wanted)

    return PreparedCase(case=case, api=api, jobs=jobs_of(case, [await fitted(prompt) for prompt in case.prompts]))


async def _tokens_in(text: str, case: Case, api: Api, asked: ProbedSide) -> int:
    """The number of tokens that a side counts in a prompt of this text, with its chat template. Raises BadSide."""
    body = body_of(case, Prompt(text=text), asked, api=api, text=text, max_tokens=1, seed=0)
    exchange = await asked.client.ask(api, body)
    count: Any = (exchange.reply.usage or {}).get("prompt_tokens")
    if exchange.failure is not None or type(count) is not int:
        why = exchange.failure.message if exchange.failure is not None else "it counts no tokens of prompts"
        raise BadSide(f"{asked.side.name} does not count the prompt of the case {case.name}: {why}")
    return count


def described(options: BenchOptions, asked: str, cases: Sequence[PreparedCase], sides: Sequence[ProbedSide]) -> Run:
    """The record of a new run, which begins now. `asked`: by `asked_of`."""
    begun = time.time()
    return Run(
        sides=tuple(each.side for each in sides),
        cases=tuple(cases),
        repetitions=options.repetitions,
        warm_up=options.warm_up,
        seed=options.seed,
        begun=datetime.fromtimestamp(begun, UTC).isoformat(timespec="seconds"),
        begun_unix=begun,
        timeout=options.timeout,
        texts=options.texts,
        asked=asked,
        machine=machine(),
        version=installed_version(),
    )


def asked_of(options: BenchOptions, sides: Sequence[Side], cases: Sequence[Case]) -> str:
    """A hash of the requested run: two commands with the same hash are of one run."""
    wanted = [options.repetitions, options.warm_up, options.seed, options.texts]
    said = [*map(asdict, sides)], [case.model_dump(mode="json") for case in cases], wanted
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def machine() -> dict[str, str]:
    """`cpu`, `cores`, `memory_gib`, `system`, `python`, without values that the system does not report."""
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
