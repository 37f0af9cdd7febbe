"""Rounds, draft tokens, token sources and waits add up in every run, and equal what the verifier ran."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from drafter_client.display.panel import sparkline
from drafter_client.display.panel_rows import bars, columns, lines, resumed
from drafter_client.errors import ConnectionLost
from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.events import Answered, Began, Committed, Sent
from drafter_client.http.client import VerifierClient
from drafter_client.statistics import OTHER, PARTS, SOLO, Baseline, Span, Stats, WaitTimes, partition
from lab.simulator.costs.cost import LinearCost
from lab.simulator.paced.engine import Paced
from specpair.drafters.draft_model import ModelDrafter
from specpair.numbers import percentages
from specpair.protocol.responses import StreamedTokens, StreamEnd, VerifyResponse
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.draft import Draft, DraftSource, DraftToken
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms, Schedule
from specpair.speculation.policy.verifier_timeline import InFlightDraft
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.http.fake_transports import verified
from tests.drafter_client.support import (
    ALL,
    EACH_WAY,
    GREEDY,
    PROMPT,
    WARM,
    WAYS,
    Scenario,
    Verifier,
    generate,
    options_of,
    plain,
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
            if part.run is None:
                counts.target_decoded += 1
            elif part.run.position > part.sequence.session.prompt_len:
                counts.requested += 1
                counts.judged += len(part.fresh)

    monkeypatch.setattr(Scheduler, "conclude", counting)
    return counts


def check(stats: Stats) -> None:
    """Each token is the prefill's, an accepted draft token, the target's token of a round, or target-decoded."""
    sources = stats.sources
    assert sources.total() == stats.generated_tokens
    assert sources[TokenSource.ACCEPTED] == stats.accepted <= stats.drafted
    assert sources[TokenSource.BONUS] + sources[TokenSource.RECOVERED] == 1 + stats.rounds
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


def test_sparkline_scales_values_to_the_greatest() -> None:
    assert sparkline([0.0, 1.0, 4.0, 7.9, 8.0]) == "▁▂▅██"
    assert sparkline([0.0, 0.0]) == "▁▁" and sparkline([]) == ""


MODEL, LOOKUP, PREDICTION = DraftSource.MODEL, DraftSource.LOOKUP, DraftSource.PREDICTION
BONUS, ACCEPTED, RECOVERED = TokenSource.BONUS, TokenSource.ACCEPTED, TokenSource.RECOVERED


def test_token_sources_tell_accepted_recovered_and_bonus_apart(client: VerifierClient) -> None:
    text = plain(ScriptedBackend(Script(seed=1)), PROMPT, 13)

    def wrong_at_six(tokens: Sequence[int]) -> int:
        at = len(tokens) - len(PROMPT)
        right = text[at] if at < len(text) else 0
        return right + 1 if at == 6 else right

    run = generate(client, Scenario(wrong_at_six), 3, max_tokens=13)
    assert [source for piece in run.committed for _, source in piece.tokens] == [
        BONUS,  # from the prefill
        *(ACCEPTED, ACCEPTED, ACCEPTED, BONUS),  # 1 to 4
        *(ACCEPTED, RECOVERED),  # 5, 6; the draft for 7 is discarded
        *(ACCEPTED, ACCEPTED, ACCEPTED, BONUS),  # 7 to 10
        *(ACCEPTED, BONUS),  # 11, and 12, which has no draft as it is the last
    ]
    assert (run.stats.rounds, run.stats.drafted, run.stats.accepted) == (4, 3 + 3 + 3 + 1, 3 + 1 + 3 + 1)


def _round(
    stats: Stats, judged: int, accepted: int, forward_ms: float = 40.0, found: Sequence[DraftSource] = ()
) -> Stats:
    """Count the response at 160 ms to a draft sent at 100 ms, and the round of its tokens."""
    count, draft = StatsCounter(stats).take, InFlightDraft(Draft.chain(10, [0] * judged), 0.1)
    response = verified([0] * (accepted + 1), accepted, judged, queue_ms=5.0, forward_ms=forward_ms)
    count(Sent(draft, Schedule.LOCKSTEP), 0.1)
    count(Answered(draft, response), 0.16)
    rounds = (
        []
        if response.round is None
        else [JudgedRound(judged, accepted, tuple(DraftToken(0, source=each) for each in found))]
    )
    count(Committed(10, [], rounds=rounds), 0.16)
    return stats


def test_draft_tokens_from_a_prediction_are_counted_where_they_are_judged() -> None:
    stats = _round(Stats(), 4, 2, found=[PREDICTION, PREDICTION, PREDICTION, LOOKUP])
    assert (stats.prediction_accepted, stats.prediction_rejected) == (2, 1)


def test_network_time_is_what_the_verifier_does_not_report() -> None:
    times = _round(_round(Stats(), 4, 4), 4, 4, forward_ms=90.0).times
    assert (times.queue, times.verify, times.network) == pytest.approx((0.01, 0.13, 0.06 - 0.045))


def test_tokens_are_counted_by_schedule() -> None:
    stats = Stats(token_ids=[7])
    count = StatsCounter(stats).take
    count(Committed(1, [(1, ACCEPTED), (2, ACCEPTED), (3, RECOVERED)], schedule=Schedule.OVERLAPPED), 1.0)
    count(Committed(4, [(4, TokenSource.TARGET_DECODED)], schedule=Schedule.SELF_CONTINUED), 2.0)
    count(Committed(5, [(5, TokenSource.TARGET_DECODED), (6, BONUS)], schedule=Schedule.OVERLAPPED), 3.0)
    assert stats.token_ids == [7, 1, 2, 3, 4, 5, 6]
    report = stats.report("")
    assert report["schedules"] == {"overlapped": 5, "self-continued": 1}
    assert report["token_sources"] == {
        "accepted": 2,
        "recovered": 1,
        "bonus": 1,
        "target_decoded": 2,
        "head": 0,
        "forced": 0,
    }
    assert report["target_decoded_tokens"] == 2


def test_one_model_alone_is_timed_token_by_token() -> None:
    stats = Stats(mode=SOLO)
    count = StatsCounter(stats).take
    count(Began(5), 0.1)
    for tokens, now in (([1], 0.15), ([2], 0.153004), ([3, 4], 0.162004)):
        count(Committed(0, [(token, TokenSource.BONUS) for token in tokens]), now)
    assert stats.token_ids == [1, 2, 3, 4] and stats.times.prefill == stats.ttft == pytest.approx(0.05)
    report = stats.report("")
    assert report["token_ms"] == [50.0, 3.0, 9.0, 0.0]
    assert report["itl_ms"] == {"median": 3.0, "p90": 7.8, "longest": 9.0}
    assert report["token_sources"] == {
        "accepted": 0,
        "recovered": 0,
        "bonus": 4,
        "target_decoded": 0,
        "head": 0,
        "forced": 0,
    }
    assert Stats().report("")["token_ms"] is Stats().report("")["itl_ms"] is None


def test_the_speed_up_is_against_the_measured_baseline() -> None:
    stats = Stats(token_ids=[1] * 100, total_time=2.0, baseline=Baseline(20.0, 1.0, 100, True))
    assert stats.tokens_per_second == 50.0
    assert stats.speed_up == 2.5
    stats.baseline = Baseline(0.0, 1.0, 0, True)
    assert stats.speed_up is None


def test_there_is_no_speed_up_where_an_outage_took_time() -> None:
    stats = Stats(token_ids=[1] * 100, total_time=2.0, baseline=Baseline(20.0, 1.0, 100, True), resumed=[7])
    assert stats.speed_up is None
    stats.resumed = []
    assert stats.speed_up is not None
    stats.baseline = Baseline.of(Stats(token_ids=[1] * 100, total_time=9.0, resumed=[7]), None)
    assert (stats.baseline.tokens_per_second, stats.speed_up) == (None, None)


def test_an_outage_has_a_row_and_a_bar_and_is_no_part_of_the_speed() -> None:
    stats = Stats(mode="target", token_ids=[1] * 5, ttft=1.0, total_time=8.0, outages=1, outage_time=3.0)
    rows, report = dict([*columns(stats)[0], *columns(stats)[1], *lines(stats)]), stats.report("")
    assert (rows["speed"], rows["TPOT"]) == ("1.00 tokens/s", "1000.00 ms")
    assert rows["outages"] == "1, 3.0 s of waiting, no part of the speed"
    assert dict(bars(stats))["outage"] == 3.0
    assert (report["tokens_per_second"], report["outages"], report["outage_ms"]) == (1.0, 1, 3000.0)
    assert resumed(stats) == ["waited 3.0 s for the verifier, in 1 outage"], "before its first token"
    stats.outages, stats.outage_time = 0, 0.0
    assert not {"outage", "outages"} & {**dict(lines(stats)), **dict(bars(stats))}.keys() and resumed(stats) == []
