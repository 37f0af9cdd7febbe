"""A recorded run in the terminal: acceptance by depth, activities over time, tokens per second over time."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drafter_client import statistics
from drafter_client.options import Mode
from lab.report.reader import Record, RunTrace, Value
from lab.report.recorded import acceptance_by_depth, spans
from specpair.numbers import counted
from specpair.protocol.terminal_text import one_line
from specpair.speculation.acceptance.strategies import Strategy


class Track(Enum):
    """A kind of activity, drawn as one line of the timeline."""

    DRAFTING = "drafting"
    NETWORK = "network"
    QUEUE = "queue"
    VERIFY = "verify"


class Span(NamedTuple):
    """An interval in which one lane was active. `begin` and `end`: milliseconds since the run began."""

    lane: Track
    begin: float
    end: float


def timeline(run: RunTrace) -> list[Span]:
    """All activities that the trace of a run holds, ordered by their begin.

    A request is on the network before the verifier's queue and behind its pass.
    """
    found = []
    for (part, begin, end), *within in spans(run):
        if within:
            (_, queued, begins), (_, _, ends) = within
            found += [Span(Track.NETWORK, begin, queued), Span(Track.QUEUE, queued, begins)]
            found += [Span(Track.VERIFY, begins, ends), Span(Track.NETWORK, ends, end)]
        else:
            found.append(Span(Track.DRAFTING if part == statistics.DRAFTING else Track.VERIFY, begin, end))
    return sorted((span for span in found if span.end > span.begin), key=lambda span: span.begin)


def window(spans: Sequence[Span], passes: int) -> tuple[float, float]:
    """Begin and end, in milliseconds, of the part of a timeline to show: at most `passes` verifier passes, those in the
    middle. (0, 0) if there are no spans."""
    if not spans:
        return 0.0, 0.0
    begins = sorted({span.begin for span in spans if span.lane is Track.VERIFY})
    if len(begins) <= passes:
        return min(span.begin for span in spans), max(span.end for span in spans)
    first = (len(begins) - passes) // 2
    return begins[first], begins[first + passes]


def coverage(spans: Iterable[Span], lane: Track, begin: float, end: float, cells: int) -> list[float]:
    """Cut the time from `begin` to `end` (milliseconds) into equal cells. Returns the share of each, 0 to 1, in which
    the lane was active."""
    width = (end - begin) / cells
    shares = [0.0] * cells
    if width <= 0.0:
        return shares
    for low, high in _merged(span for span in spans if span.lane is lane and span.end > begin and span.begin < end):
        low, high = (max(low, begin) - begin) / width, (min(high, end) - begin) / width
        for cell in range(int(low), min(cells, int(high) + 1)):
            shares[cell] += max(0.0, min(high, cell + 1) - max(low, cell))
    return [min(1.0, share) for share in shares]


def _merged(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """The union of the spans, as separate intervals in order."""
    merged: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.begin):
        if merged and span.begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], span.end)
        else:
            merged.append((span.begin, span.end))
    return merged


class Rate(NamedTuple):
    """Tokens per second within one interval of the run. `begin` and `end`: milliseconds since the run began."""

    begin: float
    end: float
    rate: float


def speed_over_time(tokens: Iterable[Record], total_ms: float, most: int) -> list[Rate]:
    """The rates in equal intervals of the run: `most` of them, or fewer so that each holds four tokens on average.

    `tokens`: records of `tokens.csv`.
    """
    times = [_number(record["committed_ms"]) for record in tokens]
    total = max([total_ms, *times])
    intervals = max(1, min(most, len(times) // 4))
    if total <= 0.0:
        return []
    counts = [0] * intervals
    for at in times:
        counts[min(intervals - 1, max(0, int(at / total * intervals)))] += 1
    width = total / intervals
    return [Rate(at * width, (at + 1) * width, 1e3 * count / width) for at, count in enumerate(counts)]


def _number(value: Value) -> float:
    return float(value or 0.0)


_COLOURS = {Track.DRAFTING: "green", Track.NETWORK: "yellow", Track.QUEUE: "red", Track.VERIFY: "blue"}
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
    shown = timeline(run)
    begin, end = window(shown, _PASSES)
    total = _ms(run.metrics["total_ms"])
    console.print(Text(f"\ntimeline, {begin:.0f} to {end:.0f} ms of {total}", "bold"))
    console.print(*_lanes(shown, begin, end, width), sep="\n")
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
        bar = Text("█" * round(_BAR * depth.share), _COLOURS[Track.DRAFTING])
        bar.append(f" {depth.accepted} of {depth.drafts}", "dim")
        table.add_row(str(depth.depth), f"{depth.share:.0%}", bar)
    return table


def _lanes(spans: list[Span], begin: float, end: float, width: int) -> list[Text]:
    if end <= begin:
        return [Text("no activity was recorded")]
    lines = []
    for lane in Track:
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
