"""Tuning: what is measured, which draft model is tried next, and what is kept."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drafter_client import Mode, Pair
from drafter_client.draft_sources import Lookup, Source
from drafter_client.errors import VocabularyMismatch
from drafter_client.options import Options
from drafter_client.tuning import TEXTS, DraftCandidate, MeasuredGain, Tuned, tune
from specpair.engines.errors import ModelLoadError
from specpair.protocol.errors import NoChatTemplate
from tests.drafter_client.support import Ticks, Verifier, toy_drafter


class PacedPair:
    """A pair whose texts take given times. `seconds`: a token, by mode. `pays`: the rate to expect, by the share of the
    measured draft step."""

    def __init__(self, seconds: dict[Mode, float], pays: Callable[[float], float] = lambda _step: 1.0) -> None:
        self._seconds, self.modes, self.round_trip_ms = seconds, list(seconds), 2.0
        self.paired = SimpleNamespace(selection=SimpleNamespace(expected_rate=lambda step, _accepted: pays(step)))
        self.written: list[tuple[int, Mode, int]] = []

    def __enter__(self) -> "PacedPair":
        return self

    def __exit__(self, *_: object) -> None: ...

    def chat(self, text: str) -> list[int]:
        raise NoChatTemplate("none")

    def encode(self, text: str) -> list[int]:
        return [TEXTS.index(text)]

    def generate(self, ids: Sequence[int], options: Options) -> AbstractContextManager[Any]:
        self.written.append((ids[0], options.mode, options.max_tokens))
        slower = 1.0 + 0.5 * ids[0]  # the machine gets slower with each text, for all modes
        stats = SimpleNamespace(
            working_time=self._seconds[options.mode] * slower * options.max_tokens,
            generated_tokens=options.max_tokens,
            draft_token_ms=None if options.mode is Mode.TARGET else 5.0,
            drafted=0 if options.mode is Mode.TARGET else 10,
            accepted=0 if options.mode is Mode.TARGET else 8,
        )
        return nullcontext(SimpleNamespace(read=lambda: SimpleNamespace(stats=stats)))


REMOTE, TARGET, FUSED = Mode.REMOTE, Mode.TARGET, Mode.FUSED
SIZES = {"small": 100, "middle": 200, "large": 400}


def _tuned(
    pairs: dict[str, PacedPair | Exception], *, seconds: float = 1e9, clock: Callable[[], float] = lambda: 0.0
) -> tuple[Tuned, list[str], list[str]]:
    """The result, the names of the draft models in the order of their trials, and what was said."""
    tried, said = list[str](), list[str]()
    sources = {name: Lookup() for name in pairs}

    def make(source: Source) -> Pair:
        name = next(name for name, each in sources.items() if each is source)
        tried.append(name)
        pair = pairs[name]
        if isinstance(pair, Exception):
            raise pair
        return cast(Pair, pair)

    candidates = [DraftCandidate(name, sources[name], SIZES[name]) for name in pairs]
    return tune("t", candidates, make, said.append, seconds=seconds, clock=clock), tried, said


def test_a_gain_is_a_ratio_within_each_text_and_modes_take_turns() -> None:
    pair = PacedPair({REMOTE: 0.05, TARGET: 0.1})
    tuned, tried, said = _tuned({"small": pair})
    assert tuned.kept is not None and (tuned.kept.draft, tuned.kept.mode) == ("small", REMOTE)
    assert (tuned.round_trip_ms, tried) == (2.0, ["small"])
    assert (tuned.kept.gain, tuned.kept.low, tuned.kept.high) == pytest.approx((2.0, 2.0, 2.0))
    assert said == [
        "small: a draft step 5.0 ms, 80% of the draft tokens accepted, remote is 2.00 (2.00 to 2.00) times the target "
        "alone"
    ]
    assert str(tuned) == "small in mode remote, 2.00 (2.00 to 2.00): kept"
    warm_up, texts = pair.written[:2], pair.written[2:]
    assert {tokens for *_, tokens in warm_up} == {8} and len({tokens for *_, tokens in texts}) == 1
    turns = [TARGET, REMOTE, REMOTE, TARGET, TARGET, REMOTE]
    assert [(text, mode) for text, mode, _ in texts] == list(zip([0, 0, 1, 1, 2, 2], turns, strict=True))


def test_the_mode_that_gains_most_is_kept() -> None:
    tuned, *_ = _tuned({"small": PacedPair({REMOTE: 0.09, FUSED: 0.05, TARGET: 0.1})})
    assert tuned.kept is not None and (tuned.kept.mode, round(tuned.kept.gain, 2)) == (FUSED, 2.0)


@pytest.mark.parametrize("token", [0.097, 0.1, 0.3])
def test_where_no_draft_model_helps_the_target_writes_alone(token: float) -> None:
    tuned, *_ = _tuned({"small": PacedPair({REMOTE: token, TARGET: 0.1})})
    assert tuned.kept is None
    assert tuned.measured[0].gain == pytest.approx(0.1 / token)
    assert str(tuned) == "no draft model helps here: the target alone"


def _pair(gain: float, pays: Callable[[float], float]) -> PacedPair:
    return PacedPair({REMOTE: 0.1 / gain, TARGET: 0.1}, pays)


GROWS: Callable[[float], float] = lambda step: 10.0 * step**0.2  # noqa: E731 - larger models are expected to gain more
SHRINKS: Callable[[float], float] = lambda step: 10.0 / step  # noqa: E731
SAME: Callable[[float], float] = lambda _step: 10.0  # noqa: E731


@pytest.mark.parametrize(
    ("gains", "pays", "tried", "kept"),
    [
        ({"small": 1.5, "middle": 1.7, "large": 1.6}, SAME, ["small"], "small"),
        ({"small": 1.5, "large": 1.7}, GROWS, ["small", "large"], "large"),
        ({"small": 1.5, "large": 1.4}, GROWS, ["small", "large"], "small"),
        ({"large": 1.1, "small": 1.4}, SHRINKS, ["large", "small"], "small"),
        ({"large": 0.9, "middle": 0.95}, SHRINKS, ["large", "middle"], None),
        ({"small": 0.6, "large": 3.0}, SAME, ["small"], None),  # the estimate says that it cannot help, either
    ],
)
def test_another_size_is_measured_where_it_may_gain_more(
    gains: dict[str, float], pays: Callable[[float], float], tried: list[str], kept: str | None
) -> None:
    tuned, order, _ = _tuned({name: _pair(gain, pays) for name, gain in gains.items()})
    assert (order, tuned.kept and tuned.kept.draft) == (tried, kept)


@pytest.mark.parametrize(("seconds", "trials"), [(3.5, 1), (100, 2)])
def test_no_further_model_is_begun_that_would_end_too_late(seconds: float, trials: int) -> None:
    pairs: dict[str, PacedPair | Exception] = {"small": _pair(1.5, GROWS), "large": _pair(1.7, GROWS)}
    assert len(_tuned(pairs, seconds=seconds, clock=Ticks(1.0))[1]) == trials


@pytest.mark.parametrize("error", [ModelLoadError("cut off\nmore"), VocabularyMismatch("cannot draft")])
def test_a_draft_model_that_is_no_use_gives_way_to_the_next(error: Exception) -> None:
    tuned, tried, said = _tuned({"small": error, "large": _pair(1.5, SAME)})
    assert (tried, tuned.kept and tuned.kept.draft) == (["small", "large"], "large")
    assert said[0].startswith("small is no use: ") and "more" not in said[0]
    nothing, *_ = _tuned({"small": error})
    assert (nothing.kept, nothing.round_trip_ms, nothing.measured) == (None, None, ())


def test_a_real_pair_is_measured(verifier: Verifier) -> None:
    from drafter_client import Custom

    source = Custom(lambda *_: toy_drafter(), "toy")
    tuned = tune("toy", [DraftCandidate("toy", source, 0)], lambda each: Pair(verifier.url, each), tokens=12)
    [found] = tuned.measured
    assert isinstance(found, MeasuredGain) and (found.draft, found.mode) == ("toy", REMOTE)
    assert 0 < found.low <= found.gain <= found.high
    assert found.step_ms is None or found.step_ms > 0
    assert verifier.sessions == 0
