"""What a user sees of a run: its progress in a terminal, and its table."""

import io

from rich.console import Console

from drafter_client.bench.load.jobs import WARM_UP, Job, PlannedStretch
from drafter_client.bench.records import (
    CaseRecord,
    MeasuredRequest,
    RequestFailure,
    Results,
    Run,
    SideRecord,
    Slo,
    Speculation,
    Stretch,
)
from drafter_client.bench.run.progress import shown
from drafter_client.bench.run.table import show


def a_request(side: str, index: int, pace: float, **others: object) -> MeasuredRequest:
    """Eleven tokens, the first after 0.1 s and the others each `pace` seconds."""
    fields = {
        "case": "code", "repetition": 0, "stretch": 0 if side == "alone" else 1, "prompt": "p", "seed": 1,
        "scheduled": 0.0, "started": float(index), "ended": 2.0, "tokens_out": 11,
        "chunks": tuple(0.1 + pace * at for at in range(11)), "side": side, "index": index,
    }  # fmt: skip
    return MeasuredRequest(**{**fields, **others})  # type: ignore[arg-type]


def results() -> Results:
    case = CaseRecord(
        name="code",
        group="code",
        description="",
        requests=2,
        concurrency=None,
        input_tokens=None,
        output_tokens=11,
        arrival={"poisson": 1.0},
        sampling={},
        slo=Slo(itl_ms=30.0),
    )
    run = Run(
        sides=(SideRecord(name="alone", url="u", model="m"), SideRecord(name="pair", url="u", model="m")),
        cases=(case,),
        repetitions=1,
        warm_up=0,
        interleaving="auto",
        seed=0,
        begun="2026-01-01T00:00:00+00:00",
        begun_unix=0.0,
    )
    failed = RequestFailure(kind="timeout", message="")
    requests = [
        a_request("alone", 0, 0.04),
        a_request("alone", 1, 0.04, failure=failed, chunks=()),
        *(a_request("pair", at, 0.02, speculation=Speculation(drafted=8, accepted=6)) for at in range(2)),
    ]
    stretches = [
        Stretch(number=at, side=side, case="code", repetition=0, begun=0.0, ended=4.0)
        for at, side in enumerate(("alone", "pair"))
    ]
    return Results(run, requests, stretches)


def printed(width: int, of: Results | None = None) -> list[str]:
    out = io.StringIO()
    show(of or results(), Console(file=out, width=width))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_the_table_has_a_row_for_each_side() -> None:
    lines = printed(100)
    assert "code (code): 2 requests as they arrive, 1 time" in lines
    assert "alone 1/2 100 / 100 40.0 / 40.0 500 / 500 22.0 1.00 2.75 - 0%" in lines
    assert "pair 2/2 100 / 100 20.0 / 20.0 300 / 300 36.7 1.67 5.50 75% 100%" in lines
    assert all(len(line) <= 100 for line in lines[:-1])  # the legend is folded in a terminal only


def test_texts_of_a_stretch_without_a_record_add_no_throughput() -> None:
    whole = results()
    more = [*whole.requests, a_request("pair", 2, 0.02, stretch=7)]
    [pair] = [line for line in printed(100, Results(whole.run, more, whole.stretches)) if line.startswith("pair")]
    assert pair == "pair 3/3 100 / 100 20.0 / 20.0 300 / 300 36.7 1.67 5.50 75% 100%"


def test_a_narrow_terminal_has_all_columns_in_two_tables_and_the_legend() -> None:
    lines = printed(70)
    assert "pair 2/2 100 / 100 20.0 / 20.0 36.7 1.67" in lines and "pair 300 / 300 5.50 75% 100%" in lines
    assert lines[-1] == printed(100)[-1] and lines[-1].startswith("TTFT, ITL, latency: p50 / p90 in ms.")


def test_progress_is_a_bar_in_a_terminal_and_lines_elsewhere() -> None:
    planned = PlannedStretch("pair", "code", 0, (Job(number=0, index=0, requests=1, prompt=0, max_tokens=1),))
    warming = PlannedStretch("pair", "code", WARM_UP, planned.jobs)
    said = {}
    for terminal in (True, False):
        out = io.StringIO()
        console = Console(file=out, force_terminal=terminal, width=100)
        with shown(console, [warming, planned], 3, lambda: 7) as watch:
            for each, stretch in zip((warming, planned), results().stretches, strict=True):
                watch.begin([each])
                watch.request(a_request("pair", 0, 0.1, stretch=stretch.number))
                watch.stretch(stretch)
        said[terminal] = out.getvalue()
    assert "code, repetition 1 of 3: pair" in said[True] and "2/2" in said[True] and "7 chunks" in said[True]
    assert said[False].splitlines() == [
        "drafter: code, repetition 1 of 3: alone, 1 request in 4.0 s",
        "drafter: code, repetition 1 of 3: pair, 1 request in 4.0 s",
    ]
