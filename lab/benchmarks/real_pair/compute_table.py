"""What `lab.benchmarks.real_pair.compute` has written: kept beside its results, and compared."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from statistics import fmean, median
from typing import NamedTuple

from lab.benchmarks.harness.report import Report
from lab.benchmarks.harness.texts import Written
from lab.benchmarks.real_pair.llama_server import ALONE

OURS = "ours, "
TARGET, COLD = f"{OURS}target", f"{OURS}auto, cold"
# llama-server's draft models: the file that is given, and the copy that our drafter makes of it.
FILE, COPY = "draft", "draft in Q4_0"
Ratios = Mapping[str, float]  # tokens a second over those of llama-server alone, by kind


class Place(NamedTuple):
    """Where texts of all ways are compared."""

    kind: str
    temperature: float
    repeat: int


class Text(NamedTuple):
    """What is kept of a text. Times in seconds."""

    place: Place
    way: str
    tokens: int
    seconds: float  # from the first token to the last
    first: float  # until the first token
    rounds: int  # of ours
    drafted: int
    accepted: int
    passes: float  # those of the target, of ours

    @property
    def rate(self) -> float:
        """Tokens a second behind the first."""
        return (self.tokens - 1) / self.seconds


def keep(report: Report, place: Place, way: str, text: Written) -> None:
    """Keep a text, and print its rate."""
    stats = text.stats
    counts = stats.rounds, stats.drafted, stats.accepted, round(stats.times.verify, 4)
    kept = Text(place, way, len(text.tokens), round(text.seconds, 4), round(text.ttft_ms / 1e3, 4), *counts)
    report.keep(kept._asdict() | {"place": place._asdict()})
    accepted = f"  {kept.accepted} of {kept.drafted} accepted" if kept.drafted else ""
    print(f"{place.kind:12}{place.temperature:4g}  {way:50}{kept.rate:7.2f} tokens/s{accepted}", flush=True)


def read(report: Report) -> list[Text]:
    """What `keep` has kept, of earlier runs, too."""
    return [Text(**told | {"place": Place(**told["place"])}) for told in report.kept()]


def tables(texts: Iterable[Text]) -> list[str]:
    """For each temperature, a line a way and what follows from them. A way that lacks a kind is left out, and none that
    lacks repeats counts as llama-server's best, with the draft model's file, and with its copy, too.
    """
    by_temperature: dict[float, list[Text]] = defaultdict(list)
    for text in texts:
        by_temperature[text.place.temperature].append(text)
    return [line for each, some in sorted(by_temperature.items()) for line in ("", *_table(each, some))]


def ratios(texts: Sequence[Text]) -> dict[str, Ratios]:
    """By way and kind, the median over the repeats of the ratio to llama-server alone."""
    alone = {text.place: text.rate for text in texts if text.way == ALONE}
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for text in texts:
        if text.place in alone:
            found[text.way][text.place.kind].append(text.rate / alone[text.place])
    medians = {way: {kind: median(each) for kind, each in kinds.items()} for way, kinds in found.items()}
    kinds = medians.get(ALONE, {})
    return {way: {kind: each[kind] for kind in kinds} for way, each in medians.items() if each.keys() == kinds.keys()}


def mean(each: Ratios) -> float:
    """The geometric mean over kinds."""
    return exp(fmean(map(log, each.values())))


def _table(temperature: float, texts: Sequence[Text]) -> list[str]:
    found = ratios(texts)
    repeats = {way: len({text.place.repeat for text in texts if text.way == way}) for way in found}
    most = max(repeats.values(), default=0)
    lines = [f"temperature {temperature:g}, times llama-server alone, medians of {most}"]
    if ALONE not in found:
        return [*lines, "  llama-server alone was not measured"]
    kinds = list(found[ALONE])
    ways = sorted(found, key=lambda way: (way.startswith(OURS), way != ALONE, way))
    width = max(map(len, ways))
    lines.append(f"  {'':{width}}" + "".join(f"{kind:>12}" for kind in kinds) + f"{'all':>8}")
    lines += [
        f"  {way:{width}}"
        + "".join(f"{found[way][kind]:12.2f}" for kind in kinds)
        + f"{mean(found[way]):8.2f}"
        + (f"  of {repeats[way]}" if repeats[way] < most else "")
        for way in ways
    ]
    whole = [way for way in ways if repeats[way] == most]
    theirs = [way for way in whole if not way.startswith(OURS)]
    modes = [way for way in whole if way.startswith(OURS) and way != COLD]
    if modes:
        with_file = [way for way in theirs if not way.endswith(COPY)]
        mine, *best = (max(some, key=lambda way: mean(found[way])) for some in (modes, with_file, theirs))
        lines += [f"  {_over(mine, each, found)}" for each in dict.fromkeys(best)]
        if TARGET in found:
            lines += [f"  {_over(way, TARGET, found)}" for way in ways if way.startswith(OURS) and way != TARGET]
        fixed = [way for way in modes if "auto" not in way]
        if COLD in found and fixed:
            lines.append(f"  {_over(COLD, max(fixed, key=lambda way: mean(found[way])), found)}")
    return lines


def _over(one: str, other: str, found: Mapping[str, Ratios]) -> str:
    over = {kind: found[one][kind] / found[other][kind] for kind in found[one]}
    worst = min(over, key=over.__getitem__)
    return f"{one} over {other}: {mean(over):.2f}, least {over[worst]:.2f} ({worst})"
