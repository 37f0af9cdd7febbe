"""What a file of prompts came to, all together: figures from its results, and the table that shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from drafter_client.prompts import label
from drafter_client.quantile import quantile
from drafter_client.results import Result


class Pace(NamedTuple):
    """Tokens per second of a prompt's text."""

    label: str  # of the prompt
    rate: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures over all finished texts, but for `seconds` and `tokens_per_second`, which are of this run alone.

    None is what nothing can be said of. Rates are tokens per second, each text's with its prompt read; times in
    milliseconds.
    """

    title: str
    prompts: int
    finished: int
    found: int  # of those finished, by an earlier run
    errors: int
    tokens: int
    seconds: float  # that this run took, with however many texts at a time
    tokens_per_second: float | None
    rate_median: float | None
    rate_p10: float | None
    ttft_median: float | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    bytes_sent: int
    bytes_received: int
    slowest: Pace | None
    fastest: Pace | None

    @classmethod
    def of(cls, prompts: int, found: Sequence[Result], new: Sequence[Result], seconds: float) -> "Summary":
        """`found`: results of an earlier run that count, `new`: those of this one, which took so many `seconds`."""
        texts = [result for result in (*found, *new) if not result.failed]
        lines = [result.line for result in texts]
        paces = [
            Pace(
                label(result.index, result.line["id"]), 1e3 * result.line["generated_tokens"] / result.line["total_ms"]
            )
            for result in texts
            if result.line["total_ms"] > 0
        ]
        here = sum(result.line["generated_tokens"] for result in new if not result.failed)
        drafted, accepted, rounds = (sum(line[name] for line in lines) for name in ("drafted", "accepted", "rounds"))
        return cls(
            title=_title(lines[0]["model"], lines[0]["draft_model"]) if lines else "no text",
            prompts=prompts,
            finished=len(texts),
            found=sum(not result.failed for result in found),
            errors=sum(result.failed for result in new),
            tokens=sum(line["generated_tokens"] for line in lines),
            seconds=seconds,
            tokens_per_second=here / seconds if here and seconds > 0 else None,
            rate_median=_quantile([pace.rate for pace in paces], 0.5),
            rate_p10=_quantile([pace.rate for pace in paces], 0.1),
            ttft_median=_quantile([line["ttft_ms"] for line in lines], 0.5),
            acceptance_rate=accepted / drafted if drafted else None,
            mean_acceptance_length=1 + accepted / rounds if rounds else None,
            bytes_sent=sum(line["bytes_sent"] for line in lines),
            bytes_received=sum(line["bytes_received"] for line in lines),
            slowest=min(paces, key=lambda pace: pace.rate, default=None),
            fastest=max(paces, key=lambda pace: pace.rate, default=None),
        )


def _title(model: str, draft_model: str) -> str:
    return f"{draft_model} drafts for {model}" if draft_model else model


def _quantile(values: Sequence[float], share: float) -> float | None:
    return quantile(values, share) if values else None


def show_summary(summary: Summary, console: Console) -> None:
    """Print the table."""
    table = Table.grid(padding=(0, 2))
    for column in range(4):
        table.add_column(justify="right" if column % 2 else "left", style="" if column % 2 else "dim")
    table.add_row("prompts", str(summary.prompts), "all together", _rate(summary.tokens_per_second))
    table.add_row("finished", str(summary.finished), "a text, median", _rate(summary.rate_median))
    if summary.found:
        table.add_row("of them before", str(summary.found), "", "")
    table.add_row("errors", str(summary.errors), "a text, p10", _rate(summary.rate_p10))
    table.add_row("tokens", str(summary.tokens), "TTFT, median", _or_dash(summary.ttft_median, "{:.0f} ms"))
    rate, length = _or_dash(summary.acceptance_rate, "{:.1%}"), _or_dash(summary.mean_acceptance_length, "{:.2f}")
    table.add_row("acceptance rate", rate, "mean acceptance length", length)
    table.add_row("sent", _bytes(summary.bytes_sent), "received", _bytes(summary.bytes_received))
    paces = Table.grid(padding=(0, 2))
    paces.add_column(style="dim")
    for name, pace in (("fastest", summary.fastest), ("slowest", summary.slowest)):
        if pace is not None:
            paces.add_row(name, Text(f"{_rate(pace.rate)}, {pace.label}"))
    paces.add_row("time", f"{summary.seconds:.1f} s")
    console.print(Panel(Group(table, Text(), paces), title=Text(summary.title), border_style="blue", expand=False))


def _rate(value: float | None) -> str:
    return _or_dash(value, "{:.2f} tokens/s")


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _bytes(count: int) -> str:
    return f"{count / 1024:.1f} KiB"
