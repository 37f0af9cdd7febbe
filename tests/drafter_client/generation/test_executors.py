"""ThreadedExecutor over a real server: the text equals the target's alone, and no session or thread is left behind."""

import signal
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import END, Script, ScriptedBackend
from drafter_client.generation.speculative_decoding import RemoteLane
from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import ResponseBounds
from drafter_client.statistics import Stats
from specpair.drafters.base import Expansion
from specpair.drafters.draft_model import ModelDrafter
from specpair.drafters.run.executors import ThreadedExecutor
from specpair.engines.backend import Entry, Logits
from specpair.speculation.acceptance.token_source import TokenSource
from specpair.speculation.policy.schedule import Mechanisms, Schedule
from specpair.speculation.sampling.sampling import Sampling
from tests.drafter_client.support import (
    ALL,
    EACH_WAY,
    GREEDY,
    PROMPT,
    SAMPLING,
    WARM,
    WAYS,
    Scenario,
    Verifier,
    begun,
    generate,
    model_info,
    options_of,
    plain,
    serving,
    target_alone,
    toy_drafter,
)
from tests.examples import examples
from tests.verifier_server.support import until

pytestmark = pytest.mark.usefixtures("no_thread_is_left", "no_waiting")


@pytest.mark.parametrize(
    ("sampling", "mechanisms", "length", "agreement"),
    [
        *product(SAMPLING.values(), WAYS.values(), [3, None], [0.6]),
        *product(SAMPLING.values(), [ALL], [3, None], [0.0, 1.0]),
        *product([WARM], WAYS.values(), [0], [1.0]),  # drafts nothing
    ],
)
def test_text_equals_target_alone_under_all_mechanisms(
    client: VerifierClient,
    verifier: Verifier,
    agreement: float,
    length: int | None,
    mechanisms: Mechanisms,
    sampling: Sampling,
) -> None:
    run = generate(client, toy_drafter(agreement, sampling), length, mechanisms=mechanisms, **options_of(sampling, 40))
    assert run.tokens == run.stats.token_ids == target_alone(sampling, 40)
    assert run.stats.finish_reason == "length"
    assert verifier.sessions == 0


@examples(20)
@given(
    mechanisms=st.builds(Mechanisms, st.just(True), st.integers(1, 4), st.booleans(), st.booleans()),
    length=st.none() | st.integers(0, 8),
    rights=st.lists(st.booleans(), min_size=1, max_size=60),
    confidence=st.floats(0.0, 1.0),
)
def test_text_does_not_depend_on_which_drafts_are_right(
    verifier: Verifier, mechanisms: Mechanisms, length: int | None, rights: list[bool], confidence: float
) -> None:
    expected = target_alone(GREEDY, 30)

    def next_token(tokens: Sequence[int]) -> int:
        at = len(tokens) - len(PROMPT)
        truth = expected[at] if at < len(expected) else 0
        return truth if rights[at % len(rights)] else (truth + 1) % 256

    with closing(VerifierClient(verifier.url)) as client:
        run = generate(client, Scenario(next_token, confidence), length, mechanisms=mechanisms, max_tokens=30)
    assert run.tokens == expected


@EACH_WAY
def test_drafter_and_verifier_read_the_prompt_concurrently(mechanisms: Mechanisms) -> None:
    reads = threading.Event()

    class WaitingBackend(ScriptedBackend):
        """Once `in_use` is set, finishes no pass before the drafter has begun to read."""

        in_use = False

        def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
            assert not self.in_use or reads.wait(20)
            return super()._forward(batch)

    class SignallingDrafter(ModelDrafter):
        def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
            reads.set()
            return super().expand(text, tails, runners_up)

    backend = WaitingBackend(Script(seed=1))
    with serving(backend) as verifier, closing(VerifierClient(verifier.url)) as client:
        backend.in_use = True
        drafter = SignallingDrafter(ScriptedBackend(Script(seed=1)), GREEDY)
        run = generate(client, drafter, None, mechanisms=mechanisms, max_tokens=20)
    assert run.tokens == target_alone(GREEDY, 20)


def test_close_stops_the_drafter_from_reading_a_long_prompt(client: VerifierClient) -> None:
    """For example if the verifier refuses the prompt: the error is raised at once."""
    chunk_ends: list[int] = []
    begun, aborted, over = threading.Event(), threading.Event(), threading.Event()

    class Slow(Scenario):
        def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
            chunk_ends.append(len(text))
            begun.set()
            assert over.wait(20)
            return super().expand(text, tails, runners_up)

    class Lane(RemoteLane):
        def another(self) -> "Lane":
            return self

        def abort(self) -> None:
            super().abort()
            aborted.set()

    lane = Lane(client, "s", ResponseBounds(client.url, 258, 1000))
    threads = ThreadedExecutor(lane, Slow(lambda tokens: 0), Mechanisms(in_flight=1, self_continue=False))
    threads.read([1] * 5000, 0)
    assert begun.wait(20)
    closing_down = threading.Thread(target=threads.close)
    closing_down.start()
    assert aborted.wait(20), "`close` has the drafter end before it aborts the lanes"
    over.set()
    closing_down.join()
    assert chunk_ends == [512]


@EACH_WAY
@pytest.mark.parametrize("agreement", [0.0, 1.0])
def test_end_token_ends_the_text(agreement: float, mechanisms: Mechanisms) -> None:
    script = Script(seed=4, end_bias=6.0)
    expected = plain(ScriptedBackend(script), PROMPT, 300)
    assert expected[-1] == END and 8 < len(expected) < 300
    with serving(ScriptedBackend(script)) as verifier, closing(VerifierClient(verifier.url)) as client:
        drafter = ModelDrafter(ScriptedBackend(Script(seed=4, end_bias=6.0, agreement=agreement)), GREEDY)
        run = generate(client, drafter, None, mechanisms=mechanisms, max_tokens=300)
        assert verifier.sessions == 0
    assert run.tokens == expected and run.stats.finish_reason == "stop"


@EACH_WAY
@pytest.mark.parametrize("options", [{}, {"max_tokens": 1000}], ids=["no limit", "a limit beyond it"])
def test_full_context_ends_the_text(options: dict[str, Any], mechanisms: Mechanisms) -> None:
    small = ScriptedBackend(Script(seed=1), context_length=40)
    with serving(small) as verifier, closing(VerifierClient(verifier.url)) as client:
        info = model_info(context_length=40)
        run = generate(client, toy_drafter(1.0), 5, info=info, mechanisms=mechanisms, **options)
    assert run.tokens == target_alone(GREEDY, 40 - len(PROMPT))
    assert run.stats.finish_reason == "length"


@EACH_WAY
def test_single_token_needs_no_verify_request(client: VerifierClient, mechanisms: Mechanisms) -> None:
    run = generate(client, toy_drafter(), None, mechanisms=mechanisms, max_tokens=1)
    assert run.tokens == target_alone(GREEDY, 1)
    assert (run.stats.rounds, run.stats.drafts_sent, run.stats.schedules) == (0, 0, {})


@EACH_WAY
def test_statistics_add_up(client: VerifierClient, mechanisms: Mechanisms) -> None:
    run = generate(client, toy_drafter(0.8), 3, mechanisms=mechanisms, max_tokens=120)
    stats, sources = run.stats, Counter(source for piece in run.committed for _, source in piece.tokens)
    assert all(piece.tokens for piece in run.committed)
    assert stats.sources.total() == sources.total() == stats.generated_tokens == 120
    assert min(stats.sources.values()) >= 0
    assert 0 <= stats.accepted <= stats.drafted and stats.rounds <= stats.drafts_sent
    assert sum(stats.schedules.values()) == 119
    assert stats.schedules.keys() <= {Schedule.OVERLAPPED, Schedule.SELF_CONTINUED}
    assert 0 <= stats.next_draft_ready <= stats.mispredicted <= 119
    assert (
        sources[TokenSource.TARGET_DECODED] == stats.sources[TokenSource.TARGET_DECODED] == 0
        or mechanisms.self_continue
    )
    assert stats.sources[TokenSource.ACCEPTED] == stats.accepted
    assert stats.sources[TokenSource.BONUS] + stats.sources[TokenSource.RECOVERED] == 1 + stats.rounds
    if mechanisms.in_flight == 1:
        assert stats.sources == sources, "the provisional sources are final"
    if not mechanisms.self_continue:
        assert stats.accepted > 0 and stats.times.drafting > 0 and stats.times.verify > 0
        assert stats.next_draft_ready == 0 or mechanisms.after_recovered
    assert 0 < stats.ttft_ms < stats.total_ms


@EACH_WAY
@pytest.mark.parametrize("pieces", [1, 3])
def test_closing_early_releases_the_session(
    client: VerifierClient, verifier: Verifier, mechanisms: Mechanisms, pieces: int
) -> None:
    stats = Stats()
    run = begun(client, toy_drafter(), stats, mechanisms)
    for _ in range(pieces):
        next(run)
    assert verifier.sessions == 1
    run.close()
    assert verifier.sessions == 0
    assert stats.finish_reason is None and stats.total_ms > 0 and stats.bytes_sent > 0
    assert stats.token_ids == target_alone(GREEDY, 900)[: stats.generated_tokens]


@EACH_WAY
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_drafter_error_is_raised_to_the_reader(
    client: VerifierClient, verifier: Verifier, mechanisms: Mechanisms, error: type[BaseException]
) -> None:
    steps = iter(range(5))

    def broken(tokens: Sequence[int]) -> int:
        if next(steps) == 4:
            raise error
        return 0

    with pytest.raises(error):
        generate(client, Scenario(broken), None, mechanisms=mechanisms, max_tokens=900)
    assert verifier.sessions == 0


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the test sends a signal to the caller's thread")
@EACH_WAY
def test_ctrl_c_ends_the_text_and_releases_the_session(
    client: VerifierClient, verifier: Verifier, mechanisms: Mechanisms
) -> None:
    caller, steps = threading.get_ident(), iter(range(10**6))

    def interrupting(tokens: Sequence[int]) -> int:
        if next(steps) == 2:
            signal.pthread_kill(caller, signal.SIGINT)
        return 0

    with pytest.raises(KeyboardInterrupt):
        generate(client, Scenario(interrupting), None, mechanisms=mechanisms, max_tokens=900)
    assert verifier.sessions == 0


class _BlockedBackend(ScriptedBackend):
    """Sends the caller's thread a Ctrl-C in the pass in which `passes_left` reaches 0, and blocks until `go` is set."""

    passes_left: int | None = None

    def __init__(self, caller: int) -> None:
        super().__init__(Script(seed=1))
        self.go = threading.Event()
        self._caller = caller

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.passes_left is not None:
            self.passes_left -= 1
        if self.passes_left == 0:
            signal.pthread_kill(self._caller, signal.SIGINT)
            assert self.go.wait(20)
        return super()._forward(batch)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the test sends a signal to the caller's thread")
@EACH_WAY
def test_closing_does_not_wait_for_a_response_in_flight(mechanisms: Mechanisms) -> None:
    backend = _BlockedBackend(threading.get_ident())
    with serving(backend) as verifier, closing(VerifierClient(verifier.url)) as client:
        before = set(threading.enumerate())
        backend.passes_left = 3
        with pytest.raises(KeyboardInterrupt):
            generate(client, toy_drafter(1.0), 3, mechanisms=mechanisms, max_tokens=900)
        # One that has just begun when Ctrl-C comes ends by itself.
        until(lambda: not set(threading.enumerate()) - before)
        sessions = verifier.sessions
        backend.go.set()
    assert sessions == 0


def test_no_stream_is_requested_for_a_session_that_never_opened(verifier: Verifier) -> None:
    requested: list[int] = []

    class Listened(RemoteLane):
        def another(self) -> "Listened":
            return lane(client.another())

        def abort(self) -> None:
            pass  # it would hide the request most of the time

        def listen(self, position: int, report: Any) -> None:
            requested.append(position)

    def lane(client: VerifierClient) -> Listened:
        return Listened(client, "s", ResponseBounds(client.url, 258, 1000))

    with closing(VerifierClient(verifier.url)) as client:
        ThreadedExecutor(lane(client), toy_drafter(), Mechanisms(in_flight=1)).close()
    assert requested == []
