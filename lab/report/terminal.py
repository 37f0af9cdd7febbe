"""The report of a run in the terminal."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drafter_client.options import Mode
from lab.report.analysis import (
    Lane,
    Rate,
    Span,
    acceptance_by_depth,
    coverage,
    speed_over_time,
    timeline,
    window,
)
from lab.report.reader import Record, RunTrace
from specpair.numbers import counted
from specpair.protocol.terminal_text import one_line
from specpair.speculation.acceptance.strategies import Strategy

_COLOURS = {Lane.DRAFTING: "green", Lane.NETWORK: "yellow", Lane.QUEUE: "red", Lane.VERIFY: "blue"}
_LEVELS = " ▁▂▃▄▅▆▇█"
_BAR = 40  # characters of the longest bar
_LABEL = 10  # characters of the label before a lane
_PASSES = 8  # verifier passes in the timeline, at most: more cannot be told apart in one line of a terminal


def show(run: RunTrace, console: Console) -> None:
    """Print the report of a run."""
    width = max(10, min(console.width, 120) - _LABEL)
    # The trace holds text from a verifier, so control characters are escaped.
    console.print(Text(one_line(title(run))), Text("\n" + one_line(summary(run.metrics)), "dim"), sep="")
    console.print(Text("\nacceptance by depth", "bold"))
    console.print(_acceptance(run))
    spans = timeline(run)
    begin, end = window(spans, _PASSES)
    total = _ms(run.metrics["total_ms"])
    console.print(Text(f"\ntimeline, {begin:.0f} to {end:.0f} ms of {total}", "bold"))
    console.print(*_lanes(spans, begin, end, width), sep="\n")
    rates = speed_over_time(run.tokens, float(run.metrics["total_ms"] or 0.0), width)
    highest = max((rate.rate for rate in rates), default=0.0)
    console.print(Text(f"\ntokens/s over time, {highest:.0f} at most", "bold"))
    if highest > 0.0:
        console.print(*_speed(rates, highest, width), sep="\n")


def title(run: RunTrace) -> str:
    """One line that identifies the run."""
    record = run.metrics
    draft = f"{record['draft_model']} drafts for " if record["draft_model"] else ""
    started = f"{record['started']}"[:19].replace("T", " ")
    which = f"run {record['run']}" if run.of == 1 else f"run {record['run']}, one of {run.of}"
    # In mode target nothing is drafted, so that the strategy has no effect.
    by_threshold = record["strategy"] == Strategy.THRESHOLD and record["mode"] != Mode.TARGET
    lossy = f", lossy: threshold {record['threshold']}" if by_threshold else ""
    return f"{which}, {started} UTC, {record['mode']}: {draft}{record['model'] or 'a model'}{lossy}"


def summary(record: Record) -> str:
    """The main statistics of the run in one line."""
    tokens = int(record["generated_tokens"] or 0)
    parts = [f"{counted(tokens, 'token')} in {_ms(record['total_ms'])}"]
    if record["tokens_per_second"] is not None:
        parts.append(f"{record['tokens_per_second']:.1f} tokens/s")
    parts.append(f"TTFT {_ms(record['ttft_ms']) if tokens else '-'}")
    if record["acceptance_rate"] is not None:
        parts.append(f"{record['accepted']} of {record['drafted']} draft tokens accepted")
    ended_early = record["error"] or ("interrupted" if record["finish_reason"] is None else None)
    return ", ".join([*parts, *([f"ended early: {ended_early}"] if ended_early else [])])


def _acceptance(run: RunTrace) -> Table | Text:
    depths = acceptance_by_depth(run.rounds)
    if not depths:
        return Text("the target judged no draft token of this drafter")
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="dim")
    table.add_column(justify="right")
    for depth in depths:
        bar = Text("█" * round(_BAR * depth.share), _COLOURS[Lane.DRAFTING])
        bar.append(f" {depth.accepted} of {depth.drafts}", "dim")
        table.add_row(str(depth.depth), f"{depth.share:.0%}", bar)
    return table


def _lanes(spans: list[Span], begin: float, end: float, width: int) -> list[Text]:
    if end <= begin:
        return [Text("no activity was recorded")]
    lines = []
    for lane in Lane:
        line = Text(lane.value.ljust(_LABEL), "dim")
        lines.append(line.append(_blocks(coverage(spans, lane, begin, end, width)), _COLOURS[lane]))
    return [*lines, _axis(begin, end, width)]


def _speed(rates: list[Rate], highest: float, width: int) -> list[Text]:
    cells = width // len(rates)
    line = "".join(block * cells for block in _blocks(rate.rate / highest for rate in rates))
    return [Text(" " * _LABEL).append(line, "cyan"), _axis(0.0, rates[-1].end, cells * len(rates))]


def _axis(begin: float, end: float, width: int) -> Text:
    first, last = f"{begin:.0f}", f"{end:.0f} ms"
    return Text(" " * _LABEL + first + last.rjust(max(len(last) + 1, width - len(first))), "dim")


def _blocks(shares: Iterable[float]) -> str:
    """One block character for each share, 0 to 1; blank only for 0."""
    top = len(_LEVELS) - 1
    return "".join(_LEVELS[0 if share <= 0.0 else max(1, round(top * share))] for share in shares)


def _ms(value: object) -> str:
    return f"{value:.0f} ms" if isinstance(value, float) else "? ms"
