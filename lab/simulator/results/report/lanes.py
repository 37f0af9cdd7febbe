"""A request over time as SVG, in lanes: what drafts, the messages, and the verifier."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from lab.reports.document import charted
from lab.reports.markup import Markup, tag
from lab.reports.svg import colour, round_steps, words
from lab.simulator.results.requests import MS
from lab.simulator.results.timelines import Shown
from lab.simulator.virtual.timeline import Lane, Span, What
from specpair.command_line.table import figure
from specpair.counted import counted

_WIDTH, _LEFT, _RIGHT = 1000, 62, 994
_TOP, _BAR, _WIRE = 6, 18, 34  # heights: above the lanes, of a bar, of the wire between the two lanes with bars
_DRAFTER, _VERIFIER = _TOP, _TOP + _BAR + _WIRE  # tops of lanes
_BOTTOM = _VERIFIER + _BAR
_LABELS, _FOOT = 14, 18  # heights below: labels of rounds, ticks
_ROUNDS = 8  # that the second chart of a request has
_NARROW, _GAP = 2.0, 0.6  # bars that are narrower, and nearer, are one
_WIDE = 26.0  # bars with room for the label of a round

# How each kind of bar is filled: the number of a colour, None for grey. The last are on top.
FILLS: dict[What, int | None] = {
    What.QUEUE: None,
    What.SLOT: None,
    What.DEVICE: None,
    What.DRAFT: 0,
    What.READ: 3,
    What.PREFILL: 2,
    What.PASS: 1,
}
_MESSAGES = {What.UP: 0, What.DOWN: 1, What.MOVE: 2}


def request_charts(shown: Shown) -> Iterator[Markup]:
    """A request from its sending to its end, and its first rounds."""
    record = shown.record
    end = max((each.end for each in shown.spans), default=record.over)
    yield charted(f"{shown.why}: from the request to its end", _told(shown), lanes(shown, record.sent, end, shown.why))
    window = first_rounds(shown.spans)
    if window is not None and window[1] - window[0] < 0.8 * (end - record.sent):
        caption = f"{shown.why}: its first rounds"
        told = "2/4: of four draft tokens that a pass judged, two were accepted"
        yield charted(caption, told, lanes(shown, *window, caption))


def legend() -> Markup:
    """What the bars mean."""
    items = [("draft", "side-0"), ("read by the draft model", "side-3"), ("prefill", "side-2"), ("pass", "side-1")]
    named = [(name, f"{side} bar") for name, side in items] + [("wait", "wait")]
    swatches = (
        tag("svg", tag("rect", x=1, y=3, width=14, height=10, class_=kind), class_="mark", viewBox="0 0 16 16")
        for _, kind in named
    )
    rows = (tag("li", swatch, name) for swatch, (name, _) in zip(swatches, named, strict=True))
    return tag("ul", *rows, class_="legend")


def first_rounds(spans: Sequence[Span]) -> tuple[float, float] | None:
    """From when to when the first rounds of a request take; None: it has none."""
    passes = [each for each in spans if each.what is What.PASS]
    rounds = [each for each in passes if each.proposed] or passes
    if not rounds:
        return None
    last = rounds[min(_ROUNDS, len(rounds)) - 1].end
    drafts = [each.begin for each in spans if each.what is What.DRAFT and each.begin < rounds[0].begin]
    begin = min(drafts, default=rounds[0].begin)
    return begin, last + 0.04 * (last - begin)


def lanes(shown: Shown, begin: float, end: float, told: str) -> Markup:
    """The lanes of a request between two times, in seconds. Ticks are milliseconds since it was sent."""
    width = max(end - begin, 1e-9)

    def x(at: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (min(max(at, begin), end) - begin) / width

    inside = [each for each in shown.spans if each.end > begin and each.begin < end]
    parts = [*_ticks(shown.record.sent, begin, end, x)]
    for top, name in (
        (_DRAFTER, Lane.DRAFTER),
        (_TOP + _BAR + (_WIRE - _BAR) / 2, Lane.WIRE),
        (_VERIFIER, Lane.VERIFIER),
    ):
        parts.append(words(name.value, _LEFT - 6, top + _BAR - 5, "right soft"))
    for what, side in _MESSAGES.items():
        lines = (_message(each, x) for each in inside if each.what is what)
        parts.append(tag("path", d="".join(lines), class_=f"{colour(side)} message"))
    for what, fill in FILLS.items():
        top = _DRAFTER if what.lane is Lane.DRAFTER else _VERIFIER
        data = _bars(((x(each.begin), x(each.end)) for each in inside if each.what is what), top)
        parts.append(tag("path", d=data, class_="wait" if fill is None else f"{colour(fill)} bar"))
    parts += _rounds(inside, x)
    return tag(
        "svg",
        tag("title", told),
        *parts,
        viewBox=f"0 0 {_WIDTH} {_BOTTOM + _LABELS + _FOOT}",
        role="img",
        class_="wide",
    )


def _told(shown: Shown) -> str:
    """The request in words."""
    record = shown.record
    where = f"{record.device or 'a device'} at {', '.join(record.nodes) or 'no verifier'}"
    parts = [f"conversation {record.conversation}, turn {record.turn}, {where}", record.status.value]
    if record.times:
        parts.append(f"first token after {figure(record.ttft / MS)} ms")
        parts.append(f"{counted(len(record.times), 'token')} after {figure((record.end - record.sent) / MS)} ms")
    if record.drafted:
        parts.append(f"{record.accepted} of {counted(record.drafted, 'draft token')} accepted")
    return "; ".join(parts)


def _ticks(sent: float, begin: float, end: float, x: Callable[[float], float]) -> Iterator[Markup]:
    steps = round_steps((end - begin) / MS)
    step = steps[1] if len(steps) > 1 else 1.0
    first = math.ceil((begin - sent) / MS / step)
    for number in range(first, math.floor((end - sent) / MS / step) + 1):
        at = x(sent + number * step * MS)
        yield tag("line", x1=at, y1=_TOP, x2=at, y2=_BOTTOM, class_="axis")
        if at < _RIGHT - 40:
            yield words(f"{number * step:g}", at, _BOTTOM + _LABELS + 12, "middle soft")
    yield words("ms", _RIGHT, _BOTTOM + _LABELS + 12, "right soft")


def _message(span: Span, x: Callable[[float], float]) -> str:
    """A line from the lane of its sender to that of its receiver."""
    drafter, verifier = _DRAFTER + _BAR, _VERIFIER
    ends = (verifier, drafter) if span.what is What.DOWN else (drafter, verifier)
    return f"M{x(span.begin):.1f} {ends[0]}L{x(span.end):.1f} {ends[1]}"


def _bars(spans: Iterable[tuple[float, float]], top: float) -> str:
    """The outlines of bars. What is too narrow to be told apart is drawn as one."""
    merged: list[list[float]] = []
    for begin, end in sorted(spans):
        last = merged[-1] if merged else None
        if last is not None and begin - last[1] < _GAP and min(last[1] - last[0], end - begin) < _NARROW:
            last[1] = max(last[1], end)
        else:
            merged.append([begin, end])
    return "".join(
        f"M{begin:.1f} {top}h{(width := max(end - begin - _GAP, _GAP)):.1f}v{_BAR}h{-width:.1f}z"
        for begin, end in merged
    )


def _rounds(spans: Iterable[Span], x: Callable[[float], float]) -> Iterator[Markup]:
    """How many draft tokens of each pass were accepted, where there is room for it."""
    for each in spans:
        if each.proposed and x(each.end) - x(each.begin) >= _WIDE:
            label = f"{each.accepted}/{each.proposed}"
            yield words(label, (x(each.begin) + x(each.end)) / 2, _BOTTOM + 11, "middle soft")
