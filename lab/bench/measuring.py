"""Measures the rest of a run, stretch by stretch, and shows its progress."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lab.bench.asking import ProbedSide, body_of
from lab.bench.client import Exchange
from lab.bench.errors import BadSide
from lab.bench.jobs import WARM_UP, Job, Stretch, as_due, due_times, in_a_loop, plan
from lab.bench.record_files import RecordsWriter
from lab.bench.records import MeasuredRequest, RequestFailure, Run, hash_of

_SEEDS = 2**53


class Measuring:
    """Measures the rest of a run, and writes each record at once.

    `stretches`: what is left to measure: requests that failed, too.
    """

    def __init__(self, run: Run, sides: Sequence[ProbedSide], writer: RecordsWriter) -> None:
        self._run, self._writer = run, writer
        self._sides = {each.side.name: each for each in sides}
        self._began = time.perf_counter() - (time.time() - run.begun_unix)  # by the clock of the sides' clients
        self._first = max([each.stretch for each in writer.records], default=-1) + 1
        done = {(each.side, *each.pairing) for each in writer.records if not each.is_warm_up and each.failure is None}
        self.stretches = list(
            plan(run.cases, [*self._sides], repetitions=run.repetitions, warm_up=run.warm_up, done=done)
        )

    async def measure(self, watch: "RunProgress") -> None:
        """Measure all requests that have no record or failed. Records stay, even if this is cancelled.

        Raises BadSide where an endpoint is gone.
        """
        for number, stretch in enumerate(self.stretches, self._first):
            watch.begin(stretch)
            run, case = partial(self._ask, watch, stretch, number), stretch.case.case
            seed = f"{self._run.seed}-{case.name}-{stretch.repetition}"
            due = due_times(case.arrival, len(stretch.case.jobs), seed)
            if due is None or stretch.repetition == WARM_UP:
                await in_a_loop(stretch.jobs, run, case.most_at_once or 1, self._now)
            else:
                first = due[stretch.jobs[0].number] if stretch.jobs[0].number else 0.0  # of an interrupted run, later
                own = [due[job.number] - first for job in stretch.jobs]
                await as_due(stretch.jobs, own, run, case.concurrency, self._now)

    def _now(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._began

    async def _ask(self, watch: "RunProgress", stretch: Stretch, number: int, job: Job, scheduled: float) -> None:
        """Run a job, and record each of its requests as soon as it ends.

        `number`: of the stretch. `scheduled`: seconds since the run began.

        Raises BadSide where no endpoint answers any more.
        """
        prepared, case, asked = stretch.case, stretch.case.case, self._sides[stretch.side]
        prompt, seed, answers = case.prompts[job.prompt], case.sampling.seed, list[str]()
        if seed is None:
            seed = (self._run.seed + max(0, stretch.repetition) * len(prepared.jobs) + job.number) % _SEEDS
        # Keeps prompts apart from those of other stretches in the endpoint's cache, and of other jobs.
        salt = f"{self._run.begun_unix}-{self._first}-{number}" + ("" if case.cache == "warm" else f"-{job.number}")
        record = partial(
            MeasuredRequest,
            side=stretch.side,
            case=case.name,
            repetition=stretch.repetition,
            stretch=number,
            prompt=prompt.name or str(job.prompt),
            seed=seed,
        )
        failed = False
        for index in job.indices:
            if failed:
                why = RequestFailure(kind="skipped", message="an earlier turn of the conversation failed")
                made = record(index=index, scheduled=scheduled, started=scheduled, ended=0.0, failure=why)
            else:
                body = body_of(
                    case,
                    prompt,
                    asked,
                    api=prepared.api,
                    text=prepared.text_of(job),
                    answers=tuple(answers),
                    max_tokens=job.max_tokens,
                    seed=seed,
                    salt=salt,
                )
                exchange = await asked.client.ask(prepared.api, body)
                if exchange.failure is not None and exchange.failure.kind == "unreachable":
                    raise BadSide(f"{stretch.side} is gone: {exchange.failure.message}")
                started = round(exchange.started - self._began, 6)
                made = record(index=index, scheduled=round(scheduled, 6), started=started, **self._data(exchange))
                answers.append(exchange.reply.text)
                scheduled, failed = started + made.ended, made.failure is not None
            self._writer.add(made)
            watch.request()

    def _data(self, exchange: Exchange) -> dict[str, Any]:
        """The fields of a record that come from an exchange."""
        reply, usage = exchange.reply, exchange.reply.usage or {}
        return {
            "chunks": exchange.chunks,
            "ended": exchange.ended,
            "tokens_in": usage.get("prompt_tokens"),
            "tokens_out": usage.get("completion_tokens"),
            "cached": (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            "finish": reply.finish,
            "text": reply.text if self._run.texts else None,
            "text_hash": hash_of(reply.text),
            "speculation": reply.speculation,
            "failure": exchange.failure,
        }


_REDRAWS = 2.0  # a second: each takes a few milliseconds, in which no chunk's time is taken


class RunProgress:
    """Shows the progress of a run: a bar over all requests in a terminal, a line for each repetition elsewhere."""

    def __init__(self, console: Console, bar: Progress, stretches: Sequence[Stretch], repetitions: int) -> None:
        self._console, self._bar, self._repetitions, self._place = console, bar, repetitions, ""
        self._task = bar.add_task("", total=sum(job.requests for each in stretches for job in each.jobs))

    def begin(self, stretch: Stretch) -> None:
        now = f"repetition {stretch.repetition + 1} of {self._repetitions}"
        place = f"{stretch.case.name}, {'warming up' if stretch.repetition == WARM_UP else now}"
        if place != self._place and not self._console.is_terminal:
            self._console.print(f"drafter: {place}", soft_wrap=True)
        self._place = place
        self._bar.update(self._task, description=f"{place}: {stretch.side}")

    def request(self) -> None:
        self._bar.advance(self._task)


@contextmanager
def shown(console: Console, stretches: Sequence[Stretch], repetitions: int) -> Iterator[RunProgress]:
    """A context that shows the progress of a run on `console`. `stretches`: the remaining ones."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    options: dict[str, Any] = {"transient": True, "refresh_per_second": _REDRAWS, "disable": not console.is_terminal}
    with Progress(*columns, console=console, **options) as bar:
        yield RunProgress(console, bar, stretches, repetitions)
