"""Several ways to write the same texts, compared: medians with their spread, and ratios within pairs.

Machines and networks drift, so what counts is how a way fares beside the target alone on the same prompt in the same
run; and which of two ways is faster is said by how often it was, pair by pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import NamedTuple

from drafter_client.metrics.quantile import quantile
from drafter_client.metrics.statistics import Stats
from drafter_client.options import Mode

TARGET = "target"
AUTO = "auto"  # the way that leaves the choice to mode `auto`: it is none of those that are chosen from
_CLOSE = 0.7  # share of the pairs in which a way has to be faster than another for that to be said of it


@dataclass(frozen=True, slots=True)
class Way:
    """A way to write a text. `draft_n`: fixed drafts a guess, None for as many as pay."""

    name: str
    mode: Mode
    draft_n: int | None = None


def ways(modes: Sequence[Mode], lengths: Sequence[int]) -> list[Way]:
    """The target alone, then what else there is: fused, remote with fixed lengths, remote with its own."""
    found = [Way(TARGET, Mode.TARGET)]
    if Mode.FUSED in modes:
        found.append(Way("fused", Mode.FUSED))
    if Mode.REMOTE in modes:
        found += [Way(f"remote k={length}", Mode.REMOTE, length) for length in lengths]
        found.append(Way("remote", Mode.REMOTE))
    return found


def shuffled(of: Sequence[Way], run: int, prompt: int) -> list[Way]:
    """Another order for every text, always the same one for the same text: so that no way always comes first."""
    order = list(of)
    Random(f"{run} {prompt}").shuffle(order)
    return order


class ComparedText(NamedTuple):
    """What one way made of one prompt in one run."""

    way: str
    kind: str
    run: int
    prompt: int
    token_ids: tuple[int, ...]
    tokens_per_second: float
    ttft_ms: float
    drafted: int
    accepted: int


def text_of(way: str, kind: str, run: int, prompt: int, stats: Stats) -> ComparedText:
    """From the figures of a text."""
    rate = stats.tokens_per_second or 0.0
    ids = tuple(stats.token_ids)
    return ComparedText(way, kind, run, prompt, ids, rate, stats.ttft_ms, stats.drafted, stats.accepted)


@dataclass(frozen=True, slots=True)
class ComparedWay:
    """How one way fared with one kind of prompts. Rates in tokens per second, quartiles around their median."""

    way: str
    texts: int
    rate: float
    low: float
    high: float
    ratio: float  # to the target alone, the median over texts
    ttft_ms: float
    acceptance: float | None
    same: int  # texts that are the target's, token by token


@dataclass(frozen=True, slots=True)
class Table:
    """All ways beside each other, in the order they were given, for one kind of prompts or for all."""

    kind: str
    rows: list[ComparedWay]
    best: str  # by the median ratio
    second: str | None
    won: int  # texts that `best` wrote faster than `second` did
    texts: int

    @property
    def clear(self) -> bool:
        """Whether the best was so in most of the texts, or might be another one the next time."""
        return self.second is None or self.won >= _CLOSE * self.texts


def table(kind: str, texts: Sequence[ComparedText]) -> Table:
    """Compare `texts`: every way has written the same ones, `target` among them."""
    names = list(dict.fromkeys(text.way for text in texts))
    by_way = {name: {(text.kind, text.prompt, text.run): text for text in texts if text.way == name} for name in names}
    alone = by_way[TARGET]
    rows = [_row(name, by_way[name], alone) for name in names]
    ranked = sorted((row for row in rows if row.way != AUTO), key=lambda row: row.ratio, reverse=True)
    second = ranked[1].way if len(ranked) > 1 else None
    won = 0
    if second is not None:
        best_texts, others = by_way[ranked[0].way], by_way[second]
        won = sum(best_texts[key].tokens_per_second > others[key].tokens_per_second for key in alone)
    return Table(kind, rows, ranked[0].way, second, won, len(alone))


def _row(
    name: str, own: dict[tuple[str, int, int], ComparedText], alone: dict[tuple[str, int, int], ComparedText]
) -> ComparedWay:
    rates = [text.tokens_per_second for text in own.values()]
    drafted = sum(text.drafted for text in own.values())
    return ComparedWay(
        way=name,
        texts=len(own),
        rate=median(rates),
        low=quantile(rates, 0.25),
        high=quantile(rates, 0.75),
        ratio=median(text.tokens_per_second / alone[key].tokens_per_second for key, text in own.items()),
        ttft_ms=median(text.ttft_ms for text in own.values()),
        acceptance=sum(text.accepted for text in own.values()) / drafted if drafted else None,
        same=sum(text.token_ids == alone[key].token_ids for key, text in own.items()),
    )
