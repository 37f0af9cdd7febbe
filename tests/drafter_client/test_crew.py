"""Everything side by side, in threads over a real server: the text is the target's own, and nothing is left behind."""

import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.contract import Entry, Logits
from backends.scripted import END, Script, ScriptedBackend
from drafter_client import client as client_module
from drafter_client.client import VerifierClient
from drafter_client.crew import Drafted, Event, Threads
from drafter_client.drafter import Expansion, ModelDrafter
from drafter_client.errors import BadReply, ConnectionLost
from drafter_client.loop import Origin, speculate
from drafter_client.stats import Stats
from drafter_client.transport import HttpTransport, Reply
from speculation.errors import UnknownSession
from speculation.operation import Mechanisms, Operation
from speculation.places import Step
from speculation.sampling import Sampling
from tests.drafter_client.support import (
    GREEDY,
    PROMPT,
    SAMPLINGS,
    Scenario,
    Ticks,
    Verifier,
    generate,
    model_info,
    options_of,
    plain,
    serving,
    target_alone,
)

ALL = Mechanisms()
WAITING = Mechanisms(self_continue=False)
WAYS = {
    "overlap": Mechanisms(in_flight=1, corrections=False, self_continue=False),
    "several in flight": Mechanisms(corrections=False, self_continue=False),
    "corrections": WAITING,
    "all": ALL,
}
EACH_WAY = pytest.mark.parametrize("mechanisms", WAYS.values(), ids=WAYS)


def _drafter(agreement: float = 0.6, sampling: Sampling = GREEDY) -> ModelDrafter:
    return ModelDrafter(ScriptedBackend(Script(seed=1, agreement=agreement)), sampling)


@pytest.fixture(autouse=True)
def _no_thread_is_left(verifier: Verifier) -> Iterator[None]:
    """The verifier's own are there before."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts at a broken connection follow each other without the pauses that they make for a person."""
    monkeypatch.setattr(client_module, "_FIRST_PAUSE", 0.0005)


@SAMPLINGS
@EACH_WAY
@pytest.mark.parametrize("length", [0, 3, None])
@pytest.mark.parametrize("agreement", [0.0, 0.6, 1.0])
def test_the_text_is_the_targets_own_however_the_two_work_together(
    client: VerifierClient,
    verifier: Verifier,
    agreement: float,
    length: int | None,
    mechanisms: Mechanisms,
    sampling: Sampling,
) -> None:
    run = generate(client, _drafter(agreement, sampling), length, mechanisms=mechanisms, **options_of(sampling, 40))
    assert run.tokens == run.stats.token_ids == target_alone(sampling, 40)
    assert run.stats.finish_reason == "length"
    assert verifier.sessions == 0


@settings(max_examples=25)
@given(
    mechanisms=st.builds(Mechanisms, st.just(True), st.integers(1, 4), st.booleans(), st.booleans()),
    length=st.none() | st.integers(0, 8),
    rights=st.lists(st.booleans(), min_size=1, max_size=60),
    sure=st.floats(0.0, 1.0),
)
def test_no_pattern_of_drafts_changes_the_text(
    verifier: Verifier, mechanisms: Mechanisms, length: int | None, rights: list[bool], sure: float
) -> None:
    expected = target_alone(GREEDY, 30)

    def guess(tokens: Sequence[int]) -> int:
        at = len(tokens) - len(PROMPT)
        truth = expected[at] if at < len(expected) else 0
        return truth if rights[at % len(rights)] else (truth + 1) % 256

    with closing(VerifierClient(verifier.url)) as client:
        run = generate(client, Scenario(guess, sure), length, mechanisms=mechanisms, max_tokens=30)
    assert run.tokens == expected


@EACH_WAY
@pytest.mark.parametrize("agreement", [0.0, 1.0])
def test_an_end_token_ends_the_text(agreement: float, mechanisms: Mechanisms) -> None:
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
def test_a_full_context_ends_the_text(options: dict[str, Any], mechanisms: Mechanisms) -> None:
    small = ScriptedBackend(Script(seed=1), context_length=40)
    with serving(small) as verifier, closing(VerifierClient(verifier.url)) as client:
        info = model_info(context_length=40)
        run = generate(client, _drafter(1.0), 5, info=info, mechanisms=mechanisms, **options)
    assert run.tokens == target_alone(GREEDY, 40 - len(PROMPT))
    assert run.stats.finish_reason == "length"


@EACH_WAY
def test_one_token_needs_nothing_of_all_this(client: VerifierClient, mechanisms: Mechanisms) -> None:
    run = generate(client, _drafter(), None, mechanisms=mechanisms, max_tokens=1)
    assert run.tokens == target_alone(GREEDY, 1)
    assert (run.stats.rounds, run.stats.guesses, run.stats.operations) == (0, 0, {})


@EACH_WAY
def test_the_counters_add_up(client: VerifierClient, mechanisms: Mechanisms) -> None:
    run = generate(client, _drafter(0.8), 3, mechanisms=mechanisms, max_tokens=120)
    stats, origins = run.stats, [origin for piece in run.committed for _, origin in piece.tokens]
    assert all(piece.tokens for piece in run.committed) and len(origins) == stats.generated_tokens == 120
    assert 0 <= stats.accepted <= stats.drafted and stats.rounds <= stats.guesses
    assert stats.accepted <= origins.count(Origin.ACCEPTED)
    assert stats.accepted + stats.own <= 119 == sum(stats.operations.values())
    assert stats.operations.keys() <= {Operation.OVERLAPPED, Operation.SELF_CONTINUED}
    assert 0 <= stats.prepared <= stats.misses <= 119
    assert stats.own == 0 or mechanisms.self_continue
    if not mechanisms.self_continue:
        assert stats.accepted > 0 and stats.times.drafting > 0 and stats.times.verify > 0
        assert stats.prepared == 0 or mechanisms.corrections
    assert 0 < stats.ttft_ms < stats.total_ms


def test_a_target_that_does_it_by_itself_is_counted_as_such(client: VerifierClient) -> None:
    """No draft is ever right, and none is sent: but for the first, which comes with the prompt, all are its own."""
    run = generate(client, Scenario(lambda tokens: 0), 0, mechanisms=ALL, max_tokens=60)
    assert run.tokens == target_alone(GREEDY, 60)
    assert run.stats.drafted == run.stats.accepted == 0
    assert 15 <= run.stats.own <= 59, "an empty guess is sent when so many are known, and its answer may tell of others"
    assert run.stats.operations == {Operation.SELF_CONTINUED: 59}


def _begun(
    client: VerifierClient, drafter: Any, stats: Stats, mechanisms: Mechanisms = ALL, max_tokens: int = 900
) -> Any:
    options = {"max_tokens": max_tokens}
    return speculate(client, drafter, PROMPT, options, model_info(), stats, Ticks(), mechanisms=mechanisms)


@EACH_WAY
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_reader_who_stops_early_leaves_nothing_behind(
    client: VerifierClient, verifier: Verifier, mechanisms: Mechanisms, pieces: int
) -> None:
    stats = Stats()
    run = _begun(client, _drafter(), stats, mechanisms)
    for _ in range(pieces):
        next(run)
    assert verifier.sessions == 1
    run.close()
    assert verifier.sessions == 0
    assert stats.finish_reason is None and stats.total_ms > 0 and stats.bytes_sent > 0
    assert stats.token_ids == target_alone(GREEDY, 900)[: stats.generated_tokens]


@EACH_WAY
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_drafter_that_fails_is_heard_of(
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


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the test sends a signal to the waiting thread")
@EACH_WAY
def test_ctrl_c_ends_it_all_and_releases_the_session(
    client: VerifierClient, verifier: Verifier, mechanisms: Mechanisms
) -> None:
    waiting, steps = threading.get_ident(), iter(range(10**6))

    def interrupting(tokens: Sequence[int]) -> int:
        if next(steps) == 2:
            signal.pthread_kill(waiting, signal.SIGINT)
        return 0

    with pytest.raises(KeyboardInterrupt):
        generate(client, Scenario(interrupting), None, mechanisms=mechanisms, max_tokens=900)
    assert verifier.sessions == 0


def test_a_prefill_that_is_refused_leaves_no_thread(verifier: Verifier) -> None:
    with closing(VerifierClient(verifier.url)) as client, pytest.raises(Exception, match="vocabulary"):
        generate(client, _drafter(), None, [999_999], mechanisms=ALL, max_tokens=5)
    assert verifier.sessions == 0


class Watched(HttpTransport):
    """A connection that a test can see into and break."""

    def __init__(self, url: str, line: "Line") -> None:
        super().__init__(url)
        self._line = line
        self.number = len(line.connections)
        self.before_release = (0, 0)
        line.connections.append(self)

    def exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float) -> Reply:
        if method == "DELETE":
            self.before_release = self.sent, self.received
        self._line.before(path)
        reply = super().exchange(method, path, body, headers, timeout)
        self._line.after(path)
        return reply

    def stream(
        self, path: str, body: bytes | None, headers: dict[str, str], timeout: float
    ) -> Iterator[tuple[str, Any]]:
        with closing(super().stream(path, body, headers, timeout)) as events:  # type: ignore[type-var]
            self._line.asked.append(path)
            for event in events:
                yield self._line.arrived(event)
                self._line.between()


class Line:
    """All connections of one client."""

    def __init__(self) -> None:
        self.connections: list[Watched] = []
        self.asked: list[str] = []

    def before(self, path: str) -> None:
        self.asked.append(path)

    def after(self, path: str) -> None:
        pass

    def between(self) -> None:
        """Between two events of a stream."""

    def arrived(self, event: tuple[str, Any]) -> tuple[str, Any]:
        return event

    def client(self, url: str, **options: Any) -> VerifierClient:
        def connect(to: str) -> Watched:
            return Watched(to, self)

        return VerifierClient(url, connect=connect, sleep=lambda _: None, **options)


@pytest.mark.parametrize(("mechanisms", "count"), [(ALL, 8), (WAITING, 7), (WAYS["overlap"], 2)])
def test_there_is_a_connection_for_each_guess_and_one_for_the_stream(
    verifier: Verifier, mechanisms: Mechanisms, count: int
) -> None:
    line = Line()
    with closing(line.client(verifier.url)) as client:
        generate(client, _drafter(), 3, mechanisms=mechanisms, max_tokens=20)
    assert len(line.connections) == count
    streams = [path for path in line.asked if "/stream" in path]
    assert len(streams) == mechanisms.self_continue
    assert not streams or streams[0].endswith(f"/stream?from={len(PROMPT) + 1}")


@EACH_WAY
def test_every_byte_of_every_connection_is_counted(verifier: Verifier, mechanisms: Mechanisms) -> None:
    line = Line()
    with closing(line.client(verifier.url)) as client:
        client.ping()  # before the run
        before = client.transport.sent, client.transport.received
        stats = generate(client, _drafter(), 3, mechanisms=mechanisms, max_tokens=40).stats
        main, *others = line.connections
        sent, received = main.before_release
        sent += sum(each.sent for each in others) - before[0]
        received += sum(each.received for each in others) - before[1]
        assert (stats.bytes_sent, stats.bytes_received) == (sent, received)
        assert sum(each.sent for each in others) > 0


def test_the_key_is_sent_over_every_connection() -> None:
    with serving(api_key="sesame") as verifier, closing(VerifierClient(verifier.url, api_key="sesame")) as client:
        run = generate(client, _drafter(), 3, mechanisms=ALL, max_tokens=20)
    assert run.tokens == target_alone(GREEDY, 20)


class _Shaky(Line):
    """Every so many requests and events a connection breaks, before a request is sent or after it was handled."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every = every
        self._counts: Counter[int] = Counter()  # by thread: one alone must not be hit again and again
        self.breaks = 0

    def before(self, path: str) -> None:
        super().before(path)
        self._shake()

    def after(self, path: str) -> None:
        self._shake()

    def between(self) -> None:
        self._shake()

    def _shake(self) -> None:
        thread = threading.get_ident()
        self._counts[thread] += 1
        if self._counts[thread] % self._every == 0:
            self.breaks += 1
            raise ConnectionLost("the connection broke")


@EACH_WAY
@pytest.mark.parametrize("every", [3, 4])
def test_the_text_does_not_depend_on_connections_that_break(
    verifier: Verifier, mechanisms: Mechanisms, every: int
) -> None:
    line = _Shaky(every)
    with closing(line.client(verifier.url)) as client:
        run = generate(client, _drafter(0.8), 3, mechanisms=mechanisms, max_tokens=80)
    assert run.tokens == target_alone(GREEDY, 80)
    assert run.stats.accepted <= run.stats.drafted
    assert line.breaks > 0 and verifier.sessions == 0


def test_a_stream_that_breaks_is_taken_up_where_it_was_left(verifier: Verifier) -> None:
    class Breaking(Line):
        def between(self) -> None:
            raise ConnectionLost("the connection broke")

    line = Breaking()
    with closing(line.client(verifier.url)) as client:
        run = generate(client, _drafter(0.0), 0, mechanisms=ALL, max_tokens=60)
    assert run.tokens == target_alone(GREEDY, 60)
    begins = [int(path.partition("from=")[2]) for path in line.asked if "/stream" in path]
    assert len(begins) > 1 and begins[0] == len(PROMPT) + 1
    assert begins == sorted(set(begins)), "each from beyond what the last one had brought"


@EACH_WAY
def test_a_verifier_that_goes_away_for_good_is_told_as_such(verifier: Verifier, mechanisms: Mechanisms) -> None:
    class Gone(Line):
        gone = False

        def before(self, path: str) -> None:
            super().before(path)
            self._check()

        def after(self, path: str) -> None:
            self._check()

        def between(self) -> None:
            self._check()

        def _check(self) -> None:
            if self.gone:
                raise ConnectionLost("the connection broke")

    line = Gone()
    with closing(line.client(verifier.url)) as client:
        stats = Stats()
        run = _begun(client, _drafter(), stats, mechanisms)
        next(run)
        line.gone = True
        with pytest.raises(ConnectionLost):
            list(run)
    assert 1 <= stats.generated_tokens < 900 and stats.finish_reason is None and stats.bytes_sent > 0
    (left,) = verifier.service.sessions.all()  # nobody was there to release it
    with closing(VerifierClient(verifier.url)) as client:
        client.release(left.id)


@EACH_WAY
def test_a_session_that_is_deleted_by_somebody_else_is_told_as_such(
    client: VerifierClient, verifier: Verifier, mechanisms: Mechanisms
) -> None:
    run = _begun(client, _drafter(), Stats(), mechanisms)
    next(run)
    (session,) = verifier.service.sessions.all()
    with closing(VerifierClient(verifier.url)) as other:
        other.release(session.id)
    with pytest.raises(UnknownSession):
        list(run)


@pytest.mark.parametrize(
    "nonsense", [{}, {"position": "x", "tokens": [], "own": True}, {"position": 12, "tokens": 5, "own": True}], ids=str
)
def test_a_stream_of_something_else_is_recognised(verifier: Verifier, nonsense: dict[str, Any]) -> None:
    class Odd(Line):
        def arrived(self, event: tuple[str, Any]) -> tuple[str, Any]:
            return event[0], nonsense

    with (
        closing(Odd().client(verifier.url)) as client,
        pytest.raises(BadReply, match=f"the event stream of {verifier.url} is not a verifier's"),
    ):
        generate(client, _drafter(0.0), 0, mechanisms=ALL, max_tokens=900)
    assert verifier.sessions == 0


def test_the_drafter_goes_on_as_far_as_the_step_says_and_each_draft_is_heard_of_in_order(
    client: VerifierClient,
) -> None:
    """It does not wait for whoever hears of it: the first draft is taken in when the third step has begun."""
    heard: list[tuple[int, bool]] = []
    third, over = threading.Event(), threading.Event()

    class Counting(ModelDrafter):
        steps = 0

        def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Expansion:
            self.steps += 1
            if self.steps == 3:
                third.set()
            return super().expand(text, tails, runners_up)

    def react(event: Event) -> bool:
        assert isinstance(event, Drafted) and third.wait(20)
        heard.append((event.expansion.predictions[0].token, event.onward))
        if not event.onward:
            over.set()
        return False

    drafter = Counting(ScriptedBackend(Script(seed=1)), GREEDY)
    with closing(Threads(client, drafter, lanes=0, stream=False)) as threads:
        threads.open("whichever", len(PROMPT), react)
        threads.draft(Step([], [[]], len(PROMPT), False, 0.0, until=5), list(PROMPT))
        assert over.wait(20)
    assert heard == [(token, at < 5) for at, token in enumerate(target_alone(GREEDY, 6))]


class _Held(ScriptedBackend):
    """Sends the waiting thread a Ctrl-C in the second pass behind the prompt's, and is at that until it is let go."""

    passes_to_go: int | None = None

    def __init__(self, waiting: int) -> None:
        super().__init__(Script(seed=1))
        self.go = threading.Event()
        self._waiting = waiting

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.passes_to_go is not None:
            self.passes_to_go -= 1
        if self.passes_to_go == 0:
            signal.pthread_kill(self._waiting, signal.SIGINT)
            assert self.go.wait(20)
        return super()._forward(batch)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the test sends a signal to the waiting thread")
@EACH_WAY
def test_an_answer_that_is_under_way_is_not_waited_for_at_the_end(mechanisms: Mechanisms) -> None:
    backend = _Held(threading.get_ident())
    with serving(backend) as verifier, closing(VerifierClient(verifier.url)) as client:
        running = set(threading.enumerate())
        backend.passes_to_go = 3
        with pytest.raises(KeyboardInterrupt):
            generate(client, _drafter(1.0), 3, mechanisms=mechanisms, max_tokens=900)
        left, sessions = set(threading.enumerate()) - running, verifier.sessions
        backend.go.set()
    assert not left and sessions == 0
