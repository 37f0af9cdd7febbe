"""Runs of `drafter bench` whose figures are known, for tests of what is made of them."""

from collections.abc import Sequence
from typing import Any

from lab.bench.case import Case, Prompt, Slo
from lab.bench.jobs import Job, PreparedCase
from lab.bench.records import MeasuredRequest, Results, Run, Side, Speculation, hash_of


def a_case(name: str = "counting", requests: int = 8, **given: Any) -> PreparedCase:
    values: dict[str, Any] = {"group": "predictable", "description": "counts from 1", "prompts": [Prompt(text="1, 2,")]}
    case = Case(name=name, **(values | {"input_tokens": 64, "output_tokens": 10} | given))
    jobs = (Job(number=at, index=at, requests=1, prompt=0, max_tokens=10) for at in range(requests))
    return PreparedCase(case=case, api="completions", jobs=tuple(jobs))


def a_side(name: str, **given: Any) -> Side:
    return Side(name=name, url="http://127.0.0.1:1/v1", model="m", **given)


def a_request(**given: Any) -> MeasuredRequest:
    """Ten tokens in ten chunks: the first after 0.5 s, the others 0.1 s apart."""
    values: dict[str, Any] = {
        "side": "target",
        "case": "counting",
        "repetition": 0,
        "index": 0,
        "stretch": 0,
        "prompt": "p0",
        "seed": 0,
        "scheduled": 0.0,
        "started": 0.0,
        "chunks": tuple(0.5 + 0.1 * number for number in range(10)),
        "ended": 1.5,
        "tokens_in": 64,
        "tokens_out": 10,
        "finish": "length",
    }
    values |= given
    if (text := values.get("text")) is not None:
        values.setdefault("text_hash", hash_of(text))
    return MeasuredRequest(**values)


def at_pace(seconds: float, **given: Any) -> MeasuredRequest:
    """A request of ten tokens, `seconds` for each of them."""
    chunks = tuple(seconds * number for number in range(1, 11))
    return a_request(chunks=chunks, ended=chunks[-1] + 0.001, **given)


def a_run(sides: Sequence[Side], cases: Sequence[PreparedCase], **given: Any) -> Run:
    values: dict[str, Any] = {
        "repetitions": 1,
        "warm_up": 1,
        "seed": 0,
        "begun": "2026-01-01T00:00:00+00:00",
        "begun_unix": 1767225600.0,
        "machine": {"cpu": "a processor", "cores": "2"},
        "version": "0",
    }
    return Run(sides=tuple(sides), cases=tuple(cases), **(values | given))


def pair_and_target() -> Results:
    """Two sides in two cases, in turns by requests: in `counting` the pair takes half the target's time for each
    token, in `noise` as much, give or take 2 %."""
    sides = [a_side("target", price_per_hour=3.6), a_side("pair", price_per_hour=7.2)]
    cases = [
        a_case(slo=Slo(latency_ms=800)),
        a_case("noise", group="high-entropy"),
    ]
    requests, clock = list[MeasuredRequest](), 0.0
    for case, times in (("counting", 0.5), ("noise", 1.0)):
        for index in range(8):
            for side in ("target", "pair"):
                pace = 0.1 + 0.01 * index  # longer prompts take longer
                pace *= (times if side == "pair" else 1.0) * (1 + 0.02 * (-1) ** (index + (side == "pair")))
                made = at_pace(
                    pace,
                    side=side,
                    case=case,
                    index=index,
                    prompt=f"p{index}",
                    stretch=len(requests),
                    started=clock,
                    scheduled=clock,
                    text=f"so it is <b>{index}</b> #### {index}",
                    speculation=Speculation(drafted=12, accepted=6, rounds=3) if side == "pair" else None,
                )
                requests.append(made)
                clock += made.ended
    return Results(a_run(sides, cases), requests)
