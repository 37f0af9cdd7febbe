"""What a user sees while a run goes on."""

import io

from rich.console import Console

from lab.bench.load.jobs import WARM_UP, Job, PlannedStretch
from lab.bench.records import Stretch
from lab.bench.run.progress import shown
from tests.lab.bench.runs import a_request


def test_progress_is_a_bar_in_a_terminal_and_lines_elsewhere() -> None:
    planned = PlannedStretch("pair", "code", 0, (Job(number=0, index=0, requests=1, prompt=0, max_tokens=1),))
    warming = PlannedStretch("pair", "code", WARM_UP, planned.jobs)
    order = (warming, planned, planned)
    stretches = [
        Stretch(number=number, side="pair", case="code", repetition=repetition, begun=0.0, ended=4.0)
        for number, repetition in enumerate((WARM_UP, 0, 0))
    ]
    said = {}
    for terminal in (True, False):
        out = io.StringIO()
        console = Console(file=out, force_terminal=terminal, width=100)
        with shown(console, order, 3, lambda: 7) as watch:
            for each, stretch in zip(order, stretches, strict=True):
                watch.begin([each])
                watch.request(a_request(side="pair", case="code", repetition=stretch.repetition))
                watch.stretch(stretch)
        said[terminal] = out.getvalue()
    assert "code, repetition 1 of 3: pair" in said[True] and "3/3" in said[True] and "7 chunks" in said[True]
    assert said[False].splitlines() == [
        "drafter: code, warming up: pair, 1 request in 4.0 s",
        "drafter: code, repetition 1 of 3: pair, 2 requests in 8.0 s",
    ]
