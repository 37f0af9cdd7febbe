"""Totals over a file of prompts: a table with statistics of its results."""

from collections.abc import Iterable, Sequence

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from drafter_client.batch.prompts import label
from drafter_client.batch.results import COUNTS, Result
from drafter_client.display.panel_rows import exactness, share, size, unit
from drafter_client.options import Mode
from specpair.numbers import quantile
from specpair.protocol.terminal_text import one_line
from specpair.speculation.acceptance.strategies import Strategy

_LISTED = 10  # resumed texts that are named, at most; each line of the results has `resumed`


def show_totals(prompts: int, found: Sequence[Result], new: Sequence[Result], seconds: float, console: Console) -> None:
    """Print the table over a file with `prompts` prompts.

    `found`: the finished results of earlier runs;
    `new`: the results of this run, which took `seconds`. The rate of all texts together is that of this run. Rates are
        in tokens per second, with the time of the prompt included.
    """
    written = [result for result in new if not result.failed]
    texts = sorted([*found, *written], key=lambda result: result.index)
    lines = [result.line for result in texts]
    total = {name: sum(line[name] for line in lines) for name in COUNTS}
    here = sum(result.line["generated_tokens"] for result in written)
    away = {result.index: float(result.line.get("outage_ms", 0.0)) for result in texts}
    rates = {
        label(result.index, result.line["id"]): 1e3 * result.line["generated_tokens"] / worked
        for result in texts
        if (worked := result.line["total_ms"] - away[result.index]) > 0
    }
    ttft = _quantile((line["ttft_ms"] for line in lines), 0.5)
    acceptance_rate = total["accepted"] / total["drafted"] if total["drafted"] else None
    acceptance_length = 1 + total["accepted"] / total["rounds"] if total["rounds"] else None
    table = Table.grid(padding=(0, 2))
    for column in range(4):
        table.add_column(justify="right" if column % 2 else "left", style="" if column % 2 else "dim")
    table.add_row("prompts", str(prompts), "all together", _rate(here / seconds if here and seconds > 0 else None))
    table.add_row("finished", str(len(texts)), "a text, median", _rate(_quantile(rates.values(), 0.5)))
    if found:
        table.add_row("of them before", str(len(found)), "", "")
    table.add_row("errors", str(len(new) - len(written)), "a text, p10", _rate(_quantile(rates.values(), 0.1)))
    table.add_row("tokens", str(total["generated_tokens"]), "TTFT, median", "-" if ttft is None else f"{ttft:.0f} ms")
    table.add_row("acceptance rate", share(acceptance_rate), "mean acceptance length", unit(acceptance_length))
    asked = lines[0]["asked"] if lines else {}  # strategy and mode are those of all texts
    strategy = asked.get("strategy", Strategy.COUPLED)
    if strategy != Strategy.COUPLED:
        threshold = "" if asked["threshold"] is None else f" {asked['threshold']:g}"
        exact = exactness(strategy, drafted=asked["mode"] != Mode.TARGET)
        table.add_row("strategy", f"{strategy}{threshold}", "the text is", exact)
    table.add_row("sent", size(total["bytes_sent"]), "received", size(total["bytes_received"]))
    speeds = Table.grid(padding=(0, 2))
    speeds.add_column(style="dim")
    for name, choose in (("fastest", max), ("slowest", min)):
        if rates:
            text = choose(rates, key=rates.__getitem__)
            speeds.add_row(name, Text(f"{_rate(rates[text])}, {text}"))
    speeds.add_row("time", f"{seconds:.1f} s")
    if waited := sum(away.values()):
        speeds.add_row("outages", f"{1e-3 * waited:.1f} s of waiting, no part of the speed of a text")
    resumed = [label(result.index, result.line["id"]) for result in texts if result.line.get("resumed")]
    if resumed:
        speeds.add_row("resumed", Text(f"{_listed(resumed)}, after the verifier went away"))
    title = Text(one_line(_title(lines[0]["model"], lines[0]["draft_model"]) if lines else "no text"))
    console.print(Panel(Group(table, Text(), speeds), title=title, border_style="blue", expand=False))


def _title(model: str, draft_model: str) -> str:
    return f"{draft_model} drafts for {model}" if draft_model else model


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _quantile(values: Iterable[float], at: float) -> float | None:
    known = list(values)
    return quantile(known, at) if known else None


def _rate(value: float | None) -> str:
    return unit(value, "tokens/s")
