"""Tunes a pair: measures how much faster a draft model makes the target over this very link, and keeps the best one.

Machines and networks drift. So the target alone and each mode that drafts write the same short texts by turns, and a
gain is a ratio within one run. After a draft model, the next smaller or larger one is measured if, by the estimates of
mode `auto`, it may gain more.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from drafter_client.draft_sources import Source
from drafter_client.errors import VocabularyMismatch
from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from drafter_client.statistics import Stats
from specpair.engines.errors import ModelLoadError, first_line
from specpair.protocol.errors import NoChatTemplate

TEXTS = (  # what a chat is about: a short explanation, code, and a list
    "In a few sentences, explain why the sky is blue in the day and red in the evening.",
    "Write a Python function that returns the n most frequent words of a text, with a docstring.",
    "List five things to check before a long bicycle tour, each with one short reason.",
)
TOKENS, _FEWEST, _LONGEST = 96, 48, 8.0  # tokens of a text; fewer where it would take more seconds
SECONDS = 180.0  # no further draft model is begun that would end later, by the time that the one before took
_WARM_UP = 8  # tokens that each mode writes before the measurement
_PAYS = 1.05  # a smaller gain is none: another run might find the contrary
_REJECTED_BY_SIZE = 0.3  # rejected draft tokens fall about by this power of the draft model's bytes


class DraftCandidate(NamedTuple):
    """A draft model to measure. `bytes`: of its file; 0: it has none, as lookup."""

    name: str
    source: Source
    bytes: int


@dataclass(frozen=True, slots=True)
class MeasuredGain:
    """A draft model's gain. Rates of texts are compared with those of the target alone on the same text.

    `mode`: the mode that gained most. `gain`: times the target alone, by the seconds of a token in all texts; `low`,
    `high`: of single texts, the least and the greatest.
    `step_ms`: a draft step; None: it was not timed. `acceptance`: the acceptance rate, 0 to 1; None: nothing judged.
    """

    draft: str
    mode: Mode
    gain: float
    low: float
    high: float
    step_ms: float | None
    acceptance: float | None

    @property
    def spread(self) -> str:
        return f"{self.gain:.2f} ({self.low:.2f} to {self.high:.2f})"

    def __str__(self) -> str:
        step = "" if self.step_ms is None else f"a draft step {self.step_ms:.1f} ms, "
        judged = "" if self.acceptance is None else f"{self.acceptance:.0%} of the draft tokens accepted, "
        return f"{self.draft}: {step}{judged}{self.mode} is {self.spread} times the target alone"


@dataclass(frozen=True, slots=True)
class Tuned:
    """What to draft with. `kept`: the best draft model with its mode; None: no draft model helps.

    `round_trip_ms`: None: no draft model could be loaded. `measured`: all draft models that were measured.
    """

    target: str
    kept: MeasuredGain | None
    round_trip_ms: float | None
    measured: tuple[MeasuredGain, ...]

    def __str__(self) -> str:
        if self.kept is None:
            return "no draft model helps here: the target alone"
        return f"{self.kept.draft} in mode {self.kept.mode}, {self.kept.spread}: kept"


def tune(
    target: str,
    candidates: Sequence[DraftCandidate],
    make: Callable[[Source], Pair],
    say: Callable[[str], object] = lambda _line: None,
    *,
    tokens: int = TOKENS,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Tuned:
    """Measure the first of the candidates, then others while they may gain more and time is left.

    `target`: its name. `make`: a pair with a source. `say`: is told each result, and each draft model that is no use.

    Raises what `make` raises, except for a draft model that cannot be loaded or has another vocabulary.
    """
    left, found, link = [*candidates], list[MeasuredGain](), None
    began, took, following = clock(), 0.0, left[0] if left else None
    while following is not None and clock() - began + took <= seconds:
        started = clock()
        left.remove(following)
        expected = dict[str, float]()  # gains of the others
        try:
            with make(following.source) as pair:
                link = pair.round_trip_ms
                found.append(_measured(following.name, pair, tokens))
                expected = _expected(found[-1], following, left, pair)
                say(str(found[-1]))
        except (ModelLoadError, VocabularyMismatch) as error:
            say(f"{following.name} is no use: {first_line(error)}")
            expected = {each.name: float("inf") for each in left}
        took = clock() - started
        best = max((1.0, *(each.gain for each in found)))
        worth = [each for each in left if expected[each.name] >= _PAYS * best]
        following = max(worth, key=lambda each: expected[each.name], default=None)
    kept = max((each for each in found if each.gain >= _PAYS), key=lambda each: each.gain, default=None)
    return Tuned(target, kept, link, tuple(found))


def _measured(name: str, pair: Pair, tokens: int) -> MeasuredGain:
    drafting = [mode for mode in pair.modes if mode is not Mode.TARGET]
    modes = [Mode.TARGET, *drafting]
    written: dict[Mode, list[Stats]] = {mode: [] for mode in modes}
    for number, text in enumerate(TEXTS):
        ids = _prompt(pair, text)
        if number == 0:
            slowest = max(_token_time(_write(pair, ids, mode, _WARM_UP)) for mode in modes)
            tokens = min(tokens, max(_FEWEST, int(_LONGEST / slowest)))
        for mode in modes if number % 2 == 0 else reversed(modes):
            written[mode].append(_write(pair, ids, mode, tokens))
    times = {mode: [_token_time(each) for each in written[mode]] for mode in modes}
    mode = min(drafting, key=lambda each: sum(times[each]))
    ratios = [alone / took for alone, took in zip(times[Mode.TARGET], times[mode], strict=True)]
    steps = [each.draft_token_ms for each in written[mode] if each.draft_token_ms is not None]
    drafted = sum(each.drafted for each in written[mode])
    return MeasuredGain(
        draft=name,
        mode=mode,
        gain=sum(times[Mode.TARGET]) / sum(times[mode]),
        low=min(ratios),
        high=max(ratios),
        step_ms=median(steps) if steps else None,
        acceptance=sum(each.accepted for each in written[mode]) / drafted if drafted else None,
    )


def _token_time(stats: Stats) -> float:
    """Seconds a token, prefill included."""
    return stats.working_time / max(1, stats.generated_tokens)


def _prompt(pair: Pair, text: str) -> list[int]:
    try:
        return pair.chat(text)
    except NoChatTemplate:
        return pair.encode(text)


def _write(pair: Pair, ids: list[int], mode: Mode, tokens: int) -> Stats:
    with pair.generate(ids, Options(max_tokens=tokens, mode=mode).cold()) as generation:
        return generation.read().stats


def _expected(
    measured: MeasuredGain, candidate: DraftCandidate, others: Sequence[DraftCandidate], pair: Pair
) -> dict[str, float]:
    """The gain that each of the others may have, by that of a measured candidate: a step reads all bytes of a model,
    and larger models are rejected less."""
    accepted, rate = measured.acceptance, pair.paired.selection.expected_rate
    if accepted is None or not candidate.bytes:
        return {each.name: 0.0 for each in others}
    per_rate, rejected = measured.gain / rate(1.0, accepted), 1.0 - accepted
    sizes = {each.name: each.bytes / candidate.bytes for each in others}
    then = {name: max(0.0, 1.0 - rejected * size**-_REJECTED_BY_SIZE) for name, size in sizes.items()}
    return {name: per_rate * rate(size, then[name]) for name, size in sizes.items()}
