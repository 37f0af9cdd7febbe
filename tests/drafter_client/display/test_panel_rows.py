"""Statistics of a run: token sources, counters, times and bytes that add up."""

from collections.abc import Sequence

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client.display.panel_rows import bars, columns, lines, resumed
from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.events import Answered, Began, Committed, Sent
from drafter_client.http.client import VerifierClient
from drafter_client.statistics import SOLO, Baseline, Stats
from specpair.drafters.draft_model import ModelDrafter
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.token_details import TokenSource
from specpair.speculation.draft import Draft, DraftSource, DraftToken
from specpair.speculation.policy.schedule import Schedule
from specpair.speculation.policy.verifier_timeline import InFlightDraft
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.http.bodies import verified
from tests.drafter_client.support import PROMPT, Scenario, generate, plain

MODEL, LOOKUP, PREDICTION, *_ = DraftSource
BONUS, ACCEPTED, RECOVERED = TokenSource.BONUS, TokenSource.ACCEPTED, TokenSource.RECOVERED


def _half_right() -> ModelDrafter:
    return ModelDrafter(ScriptedBackend(Script(seed=1, agreement=0.7)), Sampling())


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
    assert report["token_sources"] == {"accepted": 2, "recovered": 1, "bonus": 1, "target_decoded": 2, "forced": 0}
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
    assert report["token_sources"] == {"accepted": 0, "recovered": 0, "bonus": 4, "target_decoded": 0, "forced": 0}
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
