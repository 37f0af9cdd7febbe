"""Rounds, draft tokens, token sources and waits add up in every run, and equal what the verifier ran."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import END, Script, ScriptedBackend
from drafter_client.display.panel import sparkline
from drafter_client.errors import ConnectionLost
from drafter_client.http.client import VerifierClient
from drafter_client.statistics import (
    OTHER,
    PARTS,
    Span,
    Stats,
    WaitTimes,
    exchange,
    fitted,
    partition,
)
from lab.simulator.costs.cost import LinearCost
from lab.simulator.paced.engine import Paced
from specpair.drafters.draft_model import ModelDrafter
from specpair.numbers import percentages
from specpair.protocol.responses import StreamedTokens, StreamEnd, VerifyResponse
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.acceptance.token_details import TokenSource
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import (
    ALL,
    EACH_WAY,
    GREEDY,
    WARM,
    WAYS,
    Verifier,
    generate,
    options_of,
    serving,
    target_alone,
    toy_drafter,
)
from verifier_server.engine.composer import BatchPlan
from verifier_server.engine.scheduler import Scheduler

EVERY_WAY = {"lockstep": LOCKSTEP, **WAYS}
ALL_WAYS = pytest.mark.parametrize("mechanisms", EVERY_WAY.values(), ids=EVERY_WAY)


@dataclass
class Passes:
    """What a verifier ran."""

    requested: int = 0  # passes for verify requests, with or without draft tokens
    judged: int = 0  # draft tokens
    target_decoded: int = 0  # passes of self-continuation
    ended_by_draft: bool = False  # whether the text ended with an accepted draft token


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """The passes of all verifiers of a test, prefills excluded."""
    counts, conclude = Passes(), Scheduler.conclude

    def counting(self: Scheduler, plan: BatchPlan, *rest: Any) -> None:
        before = [len(part.sequence.session.tokens) for part in plan.parts]
        conclude(self, plan, *rest)
        for part, known in zip(plan.parts, before, strict=True):
            new_tokens = part.sequence.session.tokens[known:]
            if not new_tokens:
                continue
            counts.ended_by_draft = new_tokens[-1] == END and new_tokens == part.fresh.ids[: len(new_tokens)]
            if part.run is None:
                counts.target_decoded += 1
            elif part.run.position > part.sequence.session.prompt_len:
                counts.requested += 1
                counts.judged += len(part.fresh)

    monkeypatch.setattr(Scheduler, "conclude", counting)
    return counts


def check(stats: Stats, ends_with_a_draft: bool = False) -> None:
    """Each token is the prefill's, an accepted draft token, the target's token of a round, or target-decoded."""
    sources = stats.sources
    assert sources.total() == stats.generated_tokens
    assert sources[TokenSource.ACCEPTED] == stats.accepted <= stats.drafted
    assert sources[TokenSource.BONUS] + sources[TokenSource.RECOVERED] == 1 + stats.rounds - ends_with_a_draft
    assert stats.rounds <= stats.drafts_sent


@pytest.fixture(
    scope="module", params=[LinearCost(0.0, 0.0, 0.0), LinearCost(1.5, 0.05, 0.0)], ids=["instant", "paced"]
)
def target(request: pytest.FixtureRequest) -> Iterator[VerifierClient]:
    """A verifier that answers before a further draft can arrive, and one at which drafts queue up."""
    backend = Paced(ScriptedBackend(Script(seed=1)), request.param)
    with serving(backend) as verifier, closing(VerifierClient(verifier.url)) as client:
        yield client


@ALL_WAYS
@pytest.mark.parametrize(
    ("length", "agreement", "sampling"), [(3, 0.0, WARM), (None, 0.7, WARM), (3, 0.9, GREEDY), (None, 1.0, GREEDY)]
)
def test_every_pass_is_counted_once(
    target: VerifierClient,
    passes: Passes,
    mechanisms: Mechanisms,
    sampling: Sampling,
    length: int | None,
    agreement: float,
) -> None:
    stats = generate(
        target, toy_drafter(agreement, sampling), length, mechanisms=mechanisms, **options_of(sampling, 50)
    ).stats
    check(stats)
    assert (stats.rounds, stats.drafted, stats.sources[TokenSource.TARGET_DECODED]) == (
        passes.requested,
        passes.judged,
        passes.target_decoded,
    )


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("length", [None, 1, 4])
def test_statistics_add_up_under_every_strategy(
    client: VerifierClient, passes: Passes, strategy: Strategy, length: int | None
) -> None:
    """Under `threshold` the recovered token may equal the rejected draft token, which still counts as rejected."""
    threshold: dict[str, Any] = {"threshold": 0.9} if strategy is Strategy.THRESHOLD else {}
    backend = ScriptedBackend(Script(seed=1, agreement=0.8))
    drafter = ModelDrafter(backend, WARM, draws=strategy is Strategy.PROBABILISTIC)
    stats = generate(client, drafter, length, strategy=str(strategy), **threshold, **options_of(WARM, 60)).stats
    check(stats)
    assert (stats.rounds, stats.drafted) == (passes.requested, passes.judged)


def test_lost_last_response_does_not_fail_a_complete_text(verifier: Verifier) -> None:
    stream_ended = threading.Event()

    class LosingClient(VerifierClient):
        """Loses each response that reports the end of the text, after the stream has reported it."""

        def another(self, *_: object, **__: object) -> "LosingClient":
            return LosingClient(self.url)

        def verify(self, *given: Any, **more: Any) -> VerifyResponse:
            response = super().verify(*given, **more)
            if response.finish_reason is not None:
                assert stream_ended.wait(20)
                raise ConnectionLost("the cable")
            return response

        def stream(self, session_id: str, position: int) -> Iterator[StreamedTokens | StreamEnd]:
            try:
                yield from super().stream(session_id, position)
            finally:
                stream_ended.set()

    with closing(LosingClient(verifier.url)) as client:
        stats = generate(client, toy_drafter(1.0), 4, mechanisms=ALL, max_tokens=40).stats
    assert stats.finish_reason == "length" and stats.token_ids == target_alone(GREEDY, 40)
    assert stats.sources.total() == 40 and min(stats.sources.values()) >= 0
    assert stats.sources[TokenSource.ACCEPTED] == stats.accepted
    assert stats.sources[TokenSource.BONUS] + stats.sources[TokenSource.RECOVERED] == 1 + stats.rounds, (
        "tokens of lost responses count as target-decoded"
    )


moments = st.floats(-50.0, 150.0, allow_nan=False)
spans = st.lists(st.tuples(st.sampled_from(PARTS), moments, moments), max_size=30)
times = st.floats(0.0, 1e6, allow_nan=False)


@given(spans, st.floats(0.0, 120.0, allow_nan=False))
def test_parts_add_up_to_the_total(found: list[Span], end: float) -> None:
    parts = partition(found, 0.0, end)
    assert list(parts) == [*PARTS, OTHER]
    assert min(parts.values()) >= 0.0 and sum(parts.values()) == pytest.approx(end, abs=1e-6)


@given(times, times, times, times)
def test_spans_of_a_request_lie_within_its_time(sent: float, took: float, queue: float, model: float) -> None:
    found = exchange("verify", sent, sent + took, queue, model)
    assert all(sent - 1e-6 <= first <= last + 1e-6 and last <= sent + took + 1e-6 for _, first, last in found)


@given(st.dictionaries(st.sampled_from(PARTS), times), times)
def test_fitted_times_add_up_to_the_total(measured: dict[str, float], total: float) -> None:
    parts = fitted(measured, total)
    assert min(parts.values()) >= 0.0 and sum(parts.values()) == pytest.approx(total, abs=1e-6)


@given(st.lists(times, max_size=8))
def test_percentages_add_up_to_100(values: list[float]) -> None:
    shares = percentages(values)
    assert sum(shares) == (100 if sum(values) > 0 else 0)
    assert all(
        abs(share - 100 * value / sum(values)) <= 1 for share, value in zip(shares, values, strict=True) if value
    )


@pytest.mark.parametrize("mode", ["target", "fused"])
def test_server_text_closed_early_counts_as_verify(mode: str) -> None:
    assert Stats(mode=mode, total_time=70.0).waits()["verify"] == 70.0
    finished = Stats(
        mode=mode, total_time=70.0, finish_reason="stop", times=WaitTimes(verify=40.0, network=10.0)
    ).waits()
    assert (finished["verify"], finished["network"], finished["other"]) == (40.0, 10.0, 20.0)


@EACH_WAY
def test_waits_of_a_pair_add_up_to_the_total(client: VerifierClient, mechanisms: Mechanisms) -> None:
    stats = generate(client, toy_drafter(), mechanisms=mechanisms, max_tokens=60).stats
    waits = stats.waits()
    assert min(waits.values()) >= 0.0 and sum(waits.values()) == pytest.approx(stats.total_time)
    assert waits["verify"] > 0.0 and waits["network"] > 0.0


TIMES = st.lists(st.floats(0.0, 1e6), min_size=1)


def test_sparkline_scales_values_to_the_greatest() -> None:
    assert sparkline([0.0, 1.0, 4.0, 7.9, 8.0]) == "▁▂▅██"
    assert sparkline([0.0, 0.0]) == "▁▁" and sparkline([]) == ""


VALUES = st.lists(st.floats(0.0, 1e3), min_size=2, max_size=30)
