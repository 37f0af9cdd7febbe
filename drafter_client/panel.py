"""The readout: text as it is committed, coloured by origin, and the panel of figures at the end."""

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from drafter_client.loop import Origin
from drafter_client.stats import Stats

_WIDEST = 60  # signs of a bar; the verifier's own times are its word
STYLES = {Origin.ACCEPTED: "green", Origin.CORRECTION: "yellow", Origin.FREE: "cyan"}


def legend() -> Text:
    """One line that explains the colours."""
    line = Text()
    for origin, meaning in (
        (Origin.ACCEPTED, "accepted draft"),
        (Origin.CORRECTION, "correction by the target"),
        (Origin.FREE, "free token of the target"),
    ):
        line.append("■ ", STYLES[origin]).append(meaning + "   ", "dim")
    return line


def show(stats: Stats, console: Console) -> None:
    """Print the panel."""
    console.print(Panel(_figures(stats), title=Text(_title(stats)), border_style="blue", expand=False))


def _title(stats: Stats) -> str:
    return f"{stats.draft_model} drafts for {stats.model}" if stats.draft_model else stats.model


def _figures(stats: Stats) -> Group:
    table = Table.grid(padding=(0, 3))
    table.add_column(justify="left", style="dim")
    table.add_column(justify="right")
    table.add_column(justify="left", style="dim")
    table.add_column(justify="right")
    table.add_row("prompt", f"{stats.prompt_tokens} tokens", "rounds", str(stats.rounds))
    table.add_row("generated", f"{stats.generated_tokens} tokens", "drafted", str(stats.drafted))
    table.add_row("ended by", stats.finish_reason or "interrupt", "accepted", str(stats.accepted))
    table.add_row("TTFT", f"{stats.ttft_ms:.0f} ms", "acceptance rate", _share(stats.acceptance_rate))
    table.add_row(
        "speed",
        _unit(stats.tokens_per_second, "tokens/s"),
        "mean acceptance length",
        _unit(stats.mean_acceptance_length),
    )
    if stats.operations:
        share = stats.prepared / stats.misses if stats.misses else None
        table.add_row("operation", _operations(stats), "drafts ready after a miss", _share(share))
        table.add_row(
            "target by itself", f"{stats.own} tokens", "guesses out of date", str(stats.guesses - stats.rounds)
        )
    if stats.looked_up:
        table.add_row("looked up", f"{stats.looked_up} drafts", "of these accepted", str(stats.looked_up_accepted))
    if stats.sampling.get("temperature"):
        table.add_row("temperature", f"{stats.sampling['temperature']:g}", "seed", str(stats.sampling.get("seed")))
    table.add_row("sent", _bytes(stats.bytes_sent), "received", _bytes(stats.bytes_received))
    return Group(table, Text(), _times(stats), *_baseline(stats))


def _operations(stats: Stats) -> str:
    """Where the pair changed its way of working: shares, by tokens."""
    total = sum(stats.operations.values())
    if len(stats.operations) == 1:
        return next(iter(stats.operations)).value
    return ", ".join(f"{operation.value} {count / total:.0%}" for operation, count in stats.operations.most_common())


def _times(stats: Stats) -> Table:
    """Where the time went, as bars."""
    times = stats.times
    rows = (
        ("prefill", times.prefill, "magenta"),
        ("drafting", times.drafting, "green"),
        ("network", times.network, "yellow"),
        ("queue", times.queue, "red"),
        ("verify", times.verify, "blue"),
    )
    total = max(stats.total_ms, 1e-9)
    table = Table.grid(padding=(0, 2))
    for name, value, colour in rows:
        bar = Text("█" * min(_WIDEST, round(30 * value / total)), colour)
        table.add_row(Text(name, "dim"), f"{value:.0f} ms", f"{value / total:.0%}", bar)
    return table


def _baseline(stats: Stats) -> list[Text]:
    baseline = stats.baseline
    if baseline is None or stats.speed_up is None:
        return []
    line = Text("\ntarget alone, measured  ", "dim")
    line.append(f"{baseline.tokens_per_second:.1f} tokens/s", "default")
    line.append(f"   TTFT {baseline.ttft_ms:.0f} ms", "default")
    line.append("   speed-up  ", "dim").append(f"{stats.speed_up:.2f}x", "bold")
    note = (
        "same text" if baseline.same_tokens else "the text differs after a near-tie of two tokens (README: near-ties)"
    )
    return [line, Text(note, "dim")]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _unit(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.2f} {unit}".rstrip()


def _bytes(count: int) -> str:
    return f"{count / 1024:.1f} KiB"
