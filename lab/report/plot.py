"""The report of a run as a PNG. Needs matplotlib, which nothing else in the drafter needs."""

from pathlib import Path
from typing import Any

from drafter_client.errors import TraceError
from lab.report.analysis import Lane, acceptance_by_depth, speed_over_time, timeline, window
from lab.report.reader import RunTrace
from lab.report.terminal import summary, title
from lab.reports.figures import new_figure, save

_COLOURS = {Lane.DRAFTING: "tab:green", Lane.NETWORK: "tab:orange", Lane.QUEUE: "tab:red", Lane.VERIFY: "tab:blue"}
_PASSES = 24  # verifier passes in the timeline, at most
_INTERVALS = 60  # intervals in the plot of tokens per second, at most


class NoMatplotlib(TraceError):
    """matplotlib is not installed."""


def draw(run: RunTrace, path: Path) -> None:
    """Write the plots of a run to a PNG. Raises NoMatplotlib, or TraceError if the file cannot be written."""
    figure = new_figure(f"{title(run)}\n{summary(run.metrics)}", 10, 9, NoMatplotlib)
    acceptance, lanes, speed = figure.subplots(3, 1)
    _acceptance(acceptance, run)
    _lanes(lanes, run)
    _speed(speed, run)
    save(figure, path, TraceError)


def _acceptance(axes: Any, run: RunTrace) -> None:
    depths = acceptance_by_depth(run.rounds)
    bars = axes.bar([each.depth for each in depths], [each.share for each in depths], color=_COLOURS[Lane.DRAFTING])
    axes.bar_label(bars, [f"{each.accepted}/{each.drafts}" for each in depths], fontsize=7)
    axes.set(title="acceptance by depth", xlabel="depth in the draft", ylabel="share accepted", ylim=(0, 1.1))
    axes.set_xticks([each.depth for each in depths])


def _lanes(axes: Any, run: RunTrace) -> None:
    spans = timeline(run)
    begin, end = window(spans, _PASSES)
    for row, lane in enumerate(Lane):
        within = [span for span in spans if span.lane is lane and span.end > begin and span.begin < end]
        pieces = [(span.begin, span.end - span.begin) for span in within]
        axes.broken_barh(pieces, (row - 0.4, 0.8), color=_COLOURS[lane], edgecolor="white", linewidth=0.3)
    axes.set_yticks(range(len(Lane)), [lane.value for lane in Lane])
    axes.invert_yaxis()
    axes.set(title="timeline", xlabel="ms since the run began")
    if end > begin:
        axes.set_xlim(begin, end)


def _speed(axes: Any, run: RunTrace) -> None:
    rates = speed_over_time(run.tokens, float(run.metrics["total_ms"] or 0.0), _INTERVALS)
    if rates:
        axes.stairs([each.rate for each in rates], [rates[0].begin, *(each.end for each in rates)], fill=True)
    axes.set(title="speed over time", xlabel="ms since the run began", ylabel="tokens/s")
