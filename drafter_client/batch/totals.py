"""Totals over a file of prompts: statistics of its results, and the table that shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from drafter_client.batch.prompts import label
from drafter_client.batch.results import Result
from drafter_client.display.panel_rows import exactness
from drafter_client.metrics.quantile import quantile
from drafter_client.options import Mode
from speculation.acceptance.strategies import Strategy
from speculation.terminal_text import one_line


class Speed(NamedTuple):
    """The speed of one text, in tokens per second."""

    label: str  # the name of its prompt in messages
    rate: float


@dataclass(frozen=True, slots=True)
class Totals:
    """Statistics over all finished texts; `seconds` and `tokens_per_second` are of this run alone.

    A statistic of no texts is None. Rates are in tokens per second, with the time of the prompt included; TTFT is in
    milliseconds.
    """

    title: str
    asked: dict[str, Any]  # settings of the first text; mode and strategy are those of all
    prompts: int
    finished: int
    found: int  # of the finished texts, those of an earlier run
    errors: int  # prompts that failed in this run
    tokens: int
    seconds: float  # that this run took, with several texts at a time
    tokens_per_second: float | None  # of all texts of this run together
    rate_median: float | None  # of single texts
    rate_p10: float | None
    ttft_median: float | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    bytes_sent: int
    bytes_received: int
    slowest: Speed | None
    fastest: Speed | None

    @classmethod
    def of(cls, prompts: int, found: Sequence[Result], new: Sequence[Result], seconds: float) -> "Totals":
        """The totals over a file with `prompts` prompts. `found`: the results of an earlier run; `new`: of this one."""
        texts = [result for result in (*found, *new) if not result.failed]
        lines = [result.line for result in texts]
        speeds = [
            Speed(
                label(result.index, result.line["id"]), 1e3 * result.line["generated_tokens"] / result.line["total_ms"]
            )
            for result in texts
            if result.line["total_ms"] > 0
        ]
        here = sum(result.line["generated_tokens"] for result in new if not result.failed)
        drafted, accepted, rounds = (sum(line[name] for line in lines) for name in ("drafted", "accepted", "rounds"))
        return cls(
            title=_title(lines[0]["model"], lines[0]["draft_model"]) if lines else "no text",
            asked=lines[0]["asked"] if lines else {},
            prompts=prompts,
            finished=len(texts),
            found=sum(not result.failed for result in found),
            errors=sum(result.failed for result in new),
            tokens=sum(line["generated_tokens"] for line in lines),
            seconds=seconds,
            tokens_per_second=here / seconds if here and seconds > 0 else None,
            rate_median=_quantile([speed.rate for speed in speeds], 0.5),
            rate_p10=_quantile([speed.rate for speed in speeds], 0.1),
            ttft_median=_quantile([line["ttft_ms"] for line in lines], 0.5),
            acceptance_rate=accepted / drafted if drafted else None,
            mean_acceptance_length=1 + accepted / rounds if rounds else None,
            bytes_sent=sum(line["bytes_sent"] for line in lines),
            bytes_received=sum(line["bytes_received"] for line in lines),
            slowest=min(speeds, key=lambda speed: speed.rate, default=None),
            fastest=max(speeds, key=lambda speed: speed.rate, default=None),
        )


def _title(model: str, draft_model: str) -> str:
    return f"{draft_model} drafts for {model}" if draft_model else model


def _quantile(values: Sequence[float], share: float) -> float | None:
    return quantile(values, share) if values else None


def show_totals(totals: Totals, console: Console) -> None:
    """Print the table."""
    table = Table.grid(padding=(0, 2))
    for column in range(4):
        table.add_column(justify="right" if column % 2 else "left", style="" if column % 2 else "dim")
    table.add_row("prompts", str(totals.prompts), "all together", _rate(totals.tokens_per_second))
    table.add_row("finished", str(totals.finished), "a text, median", _rate(totals.rate_median))
    if totals.found:
        table.add_row("of them before", str(totals.found), "", "")
    table.add_row("errors", str(totals.errors), "a text, p10", _rate(totals.rate_p10))
    table.add_row("tokens", str(totals.tokens), "TTFT, median", _or_dash(totals.ttft_median, "{:.0f} ms"))
    rate, length = _or_dash(totals.acceptance_rate, "{:.1%}"), _or_dash(totals.mean_acceptance_length, "{:.2f}")
    table.add_row("acceptance rate", rate, "mean acceptance length", length)
    strategy = totals.asked.get("strategy", Strategy.COUPLED)
    if strategy != Strategy.COUPLED:
        exact = exactness(strategy, drafted=totals.asked["mode"] != Mode.TARGET)
        threshold = "" if totals.asked["threshold"] is None else f" {totals.asked['threshold']:g}"
        table.add_row("strategy", f"{strategy}{threshold}", "the text is", exact)
    table.add_row("sent", _bytes(totals.bytes_sent), "received", _bytes(totals.bytes_received))
    speeds = Table.grid(padding=(0, 2))
    speeds.add_column(style="dim")
    for name, speed in (("fastest", totals.fastest), ("slowest", totals.slowest)):
        if speed is not None:
            speeds.add_row(name, Text(f"{_rate(speed.rate)}, {speed.label}"))
    speeds.add_row("time", f"{totals.seconds:.1f} s")
    console.print(
        Panel(Group(table, Text(), speeds), title=Text(one_line(totals.title)), border_style="blue", expand=False)
    )


def _rate(value: float | None) -> str:
    return _or_dash(value, "{:.2f} tokens/s")


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _bytes(count: int) -> str:
    return f"{count / 1024:.1f} KiB"
