"""Rounds, drafts and tokens add up on every run, however guesses overlap; and with what the verifier did."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from backends.scripted import END, Script, ScriptedBackend
from drafter_client.errors import ConnectionLost
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import StreamedTokens, StreamEnd, VerifyResponse
from drafter_client.metrics.statistics import Stats
from drafter_client.metrics.token_source import TokenSource
from drafters.draft_model import ModelDrafter
from simulation.paced import Cost, Paced
from speculation.acceptance.strategies import Strategy
from speculation.policy.schedule import LOCKSTEP, Mechanisms
from speculation.sampling.sampling import Sampling
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
from verifier_server.engine.scheduler import Scheduler

EVERY_WAY = {"lockstep": LOCKSTEP, **WAYS}
ALL_WAYS = pytest.mark.parametrize("mechanisms", EVERY_WAY.values(), ids=EVERY_WAY)


@dataclass
class Passes:
    """What a verifier ran."""

    asked: int = 0  # passes that a guess was judged in, or that gave a step asked for
    judged: int = 0  # drafts
    own: int = 0  # steps that nobody asked for
    ended_by_draft: bool = False  # whether the text ended with a draft that stood


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """Of all verifiers of a test; but for the prompts'."""
    seen, commit = Passes(), Scheduler._commit

    def watched(self: Scheduler, part: Any, *rest: Any) -> None:
        before = len(part.sequence.session.tokens)
        commit(self, part, *rest)
        brought = part.sequence.session.tokens[before:]
        seen.ended_by_draft = brought[-1] == END and brought == part.fresh[: len(brought)]
        if part.run is None:
            seen.own += 1
        elif part.run.position > part.sequence.session.prompt_len:
            seen.asked += 1
            seen.judged += len(part.fresh)

    monkeypatch.setattr(Scheduler, "_commit", watched)
    return seen


def check(stats: Stats, ends_with_a_draft: bool = False) -> None:
    """Each token is the first, a draft that stood, the target's own word of a round, or one that nobody asked for."""
    sources = stats.sources
    assert sources.total() == stats.generated_tokens
    assert sources[TokenSource.ACCEPTED] == stats.accepted <= stats.drafted
    assert sources[TokenSource.BONUS] + sources[TokenSource.RECOVERED] == 1 + stats.rounds - ends_with_a_draft
    assert stats.rounds <= stats.drafts_sent


@pytest.fixture(scope="module", params=[Cost(0.0, 0.0, 0.0), Cost(1.5, 0.05, 0.0)], ids=["instant", "paced"])
def target(request: pytest.FixtureRequest) -> Iterator[VerifierClient]:
    """A verifier that has decided before a further guess can come, and one in front of which they meet."""
    backend = Paced(ScriptedBackend(Script(seed=1)), request.param)
    with serving(backend) as verifier, closing(VerifierClient(verifier.url)) as client:
        yield client


@ALL_WAYS
@pytest.mark.parametrize("length", [None, 3])
@pytest.mark.parametrize(("agreement", "sampling"), [(0.0, WARM), (0.7, WARM), (0.9, GREEDY), (1.0, GREEDY)])
def test_every_pass_is_counted_once(
    target: VerifierClient,
    passes: Passes,
    mechanisms: Mechanisms,
    sampling: Sampling,
    length: int | None,
    agreement: float,
) -> None:
    stats = generate(
        target, toy_drafter(agreement, sampling), length, mechanisms=mechanisms, **options_of(sampling, 100)
    ).stats
    check(stats)
    assert (stats.rounds, stats.drafted, stats.sources[TokenSource.TARGET_DECODED]) == (
        passes.asked,
        passes.judged,
        passes.own,
    )


@ALL_WAYS
@pytest.mark.parametrize("agreement", [0.0, 1.0])
def test_a_draft_that_ends_the_text_has_nothing_behind_it(
    passes: Passes, mechanisms: Mechanisms, agreement: float
) -> None:
    script = Script(seed=4, end_bias=6.0)
    drafter = ModelDrafter(ScriptedBackend(Script(seed=4, end_bias=6.0, agreement=agreement)), GREEDY)
    with serving(ScriptedBackend(script)) as verifier, closing(VerifierClient(verifier.url)) as client:
        stats = generate(client, drafter, 4, mechanisms=mechanisms, max_tokens=300).stats
    assert (stats.token_ids[-1], stats.finish_reason) == (END, "stop")
    assert agreement > 0 or not passes.ended_by_draft
    check(stats, passes.ended_by_draft)
    assert (stats.rounds, stats.drafted, stats.sources[TokenSource.TARGET_DECODED]) == (
        passes.asked,
        passes.judged,
        passes.own,
    )


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("length", [None, 1, 4])
def test_by_every_strategy(client: VerifierClient, passes: Passes, strategy: Strategy, length: int | None) -> None:
    """By threshold the target's own token may be the very draft that fell, which did not stand for all that."""
    threshold = {"threshold": 0.9} if strategy is Strategy.THRESHOLD else {}
    backend = ScriptedBackend(Script(seed=1, agreement=0.8))
    drafter = ModelDrafter(backend, WARM, draws=strategy is Strategy.PROBABILISTIC)
    stats = generate(client, drafter, length, strategy=str(strategy), **threshold, **options_of(WARM, 60)).stats
    check(stats)
    assert (stats.rounds, stats.drafted) == (passes.asked, passes.judged)


def test_guesses_that_end_with_their_text_are_counted_too(client: VerifierClient, passes: Passes) -> None:
    """However short: of a guess that a longer one contained, the answer comes first, and it tells of the end."""
    for count in range(2, 12):
        stats = generate(client, toy_drafter(1.0), 3, mechanisms=WAYS["several in flight"], max_tokens=count).stats
        check(stats)
        assert (stats.rounds, stats.drafted) == (passes.asked, passes.judged)
        passes.asked = passes.judged = 0


def test_a_last_answer_that_is_lost_is_no_fault_of_a_text_that_is_here(verifier: Verifier) -> None:
    over = threading.Event()

    class Losing(VerifierClient):
        """Of each answer that tells of the end, the connection is lost once the stream has told of it."""

        def another(self) -> "Losing":
            return Losing(self.url)

        def guess(self, *given: Any, **more: Any) -> Callable[[], VerifyResponse]:
            answer = super().guess(*given, **more)

            def lost() -> VerifyResponse:
                response = answer()
                if response.finish_reason is not None:
                    assert over.wait(20)
                    raise ConnectionLost("the cable")
                return response

            return lost

        def stream(self, session_id: str, position: int) -> Iterator[StreamedTokens | StreamEnd]:
            try:
                yield from super().stream(session_id, position)
            finally:
                over.set()

    with closing(Losing(verifier.url)) as client:
        stats = generate(client, toy_drafter(1.0), 4, mechanisms=ALL, max_tokens=40).stats
    assert stats.finish_reason == "length" and stats.token_ids == target_alone(GREEDY, 40)
    assert stats.sources.total() == 40 and min(stats.sources.values()) >= 0
    assert stats.sources[TokenSource.ACCEPTED] == stats.accepted
    assert stats.sources[TokenSource.BONUS] + stats.sources[TokenSource.RECOVERED] == 1 + stats.rounds, (
        "the rest counts as own"
    )
