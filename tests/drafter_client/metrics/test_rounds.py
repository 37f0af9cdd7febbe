"""Rounds, draft tokens and token sources add up in every run, and equal what the verifier ran."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from backends.scripted import END, Script, ScriptedBackend
from drafter_client.errors import ConnectionLost
from drafter_client.http.client import VerifierClient
from drafter_client.metrics.statistics import Stats
from lab.simulator.costs.cost import LinearCost
from lab.simulator.paced.engine import Paced
from specpair.drafters.draft_model import ModelDrafter
from specpair.protocol.responses import StreamedTokens, StreamEnd, VerifyResponse
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.acceptance.token_details import TokenSource
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import (
    ALL,
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


@ALL_WAYS
@pytest.mark.parametrize("agreement", [0.0, 1.0])
def test_accepted_end_token_has_no_bonus_token(passes: Passes, mechanisms: Mechanisms, agreement: float) -> None:
    script = Script(seed=4, end_bias=6.0)
    drafter = ModelDrafter(ScriptedBackend(Script(seed=4, end_bias=6.0, agreement=agreement)), GREEDY)
    with serving(ScriptedBackend(script)) as verifier, closing(VerifierClient(verifier.url)) as client:
        stats = generate(client, drafter, 4, mechanisms=mechanisms, max_tokens=300).stats
    assert (stats.token_ids[-1], stats.finish_reason) == (END, "stop")
    assert agreement > 0 or not passes.ended_by_draft
    check(stats, passes.ended_by_draft)
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


def test_last_verify_requests_of_a_text_are_counted(client: VerifierClient, passes: Passes) -> None:
    """Also if the response to an absorbed draft comes first and reports the end of the text."""
    for count in range(2, 12):
        stats = generate(client, toy_drafter(1.0), 3, mechanisms=WAYS["several in flight"], max_tokens=count).stats
        check(stats)
        assert (stats.rounds, stats.drafted) == (passes.requested, passes.judged)
        passes.requested = passes.judged = 0


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
