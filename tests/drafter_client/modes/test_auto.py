"""Mode `auto`: the fastest mode generates the text, no token is lost or doubled, a changed link changes the mode."""

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from drafter_client import Mode, Options
from drafter_client.errors import ConnectionLost
from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.events import Committed, Ended, Listener, ModeChosen, Resumed
from drafter_client.http.client import VerifierClient
from drafter_client.http.text_session import ResponseBounds, TextSession
from drafter_client.modes.auto import LatencyProbe, ModeSelection, Run, automatic
from drafter_client.modes.memory import ModeMemory
from drafter_client.statistics import Stats
from specpair.drafters.base import Expansion
from specpair.protocol.fingerprint import Fingerprint
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.token_source import TokenSource
from specpair.speculation.drafts.tree import Proposal
from specpair.speculation.policy.modes.rates import ModeRates
from tests.drafter_client.http.bodies import model_info
from tests.drafter_client.http.fake_transports import Canned
from tests.drafter_client.support import Ticks

PROMPT = [1, 2, 3]
MODES = [Mode.REMOTE, Mode.FUSED, Mode.TARGET]
END = 999


class World:
    """Modes that generate a given text at given rates, on a clock that only they advance; and a link."""

    def __init__(
        self, rates: Callable[["World", Mode], float], link: Callable[[float], float] = lambda _: 0.001
    ) -> None:
        self.now = 0.0
        self.rates, self.link = rates, link
        self.begun: list[tuple[Mode, int]] = []  # mode and known tokens of each stretch
        self.open: list[Mode] = []
        self.most_open = 0
        self.ends_at: int | None = None
        self.texts: list[TextSession] = []
        self.used: list[Any] = []  # the connection of each stretch

    def clock(self) -> float:
        return self.now

    def token(self, position: int) -> int:
        return END if position == self.ends_at else position * 7 % 100

    def begin(self, text: TextSession, options: Options, tell: Listener) -> Run:
        known, end = text.known, len(text.prompt_ids) + options.max_tokens
        assert len(known) < end and END not in known and not text.unread
        self.begun.append((options.mode, len(known)))
        self.open.append(options.mode)
        self.most_open = max(self.most_open, len(self.open))
        self.texts.append(text)
        try:
            for at in range(len(known), end):
                self.now += 1 / self.rates(self, options.mode)
                yield self.commit(text, tell)
                if self.token(at) == END:
                    text.finish_reason = "stop"
                    return
            text.finish_reason = "length"
        finally:
            self.open.remove(options.mode)

    def commit(self, text: TextSession, tell: Listener) -> Committed:
        """Commit the next token, by a verifier pass over no draft token."""
        position = len(text.known)
        committed = Committed(position, [(self.token(position), TokenSource.BONUS)], rounds=[JudgedRound(0, 0)])
        text.known.append(self.token(position))
        tell(committed, self.now)
        return committed


class Connection:
    """The part of a client that `automatic` uses: further connections."""

    connected = 0

    def another(self) -> "Connection":
        return Connection()

    @property
    def connection(self) -> "Connection":
        return self

    def connect(self) -> None:
        self.connected += 1

    def close(self) -> None:
        pass


def _info(pass_ms: float) -> ModelInfo:
    """A verifier whose target takes `pass_ms` for a token, and whose draft model takes an eighth of that."""
    passes = [pass_ms * (1.0 + 0.02 * more) for more in range(17)]
    return model_info(
        name="target",
        context_length=4096,
        max_drafts=16,
        pass_ms=passes,
        vocabulary=Fingerprint(256, 256, None, (), "", "", ""),
        modes=["fused", "target"],
        draft_model="served",
        draft_pass_ms=pass_ms / 8,
    )


INFO = _info(100.0)  # 10 tokens per second


def _selection(
    world: World, modes: Sequence[Mode] = MODES, memory: Path | None = None, info: ModelInfo = INFO
) -> ModeSelection:
    mode_memory = None if memory is None else ModeMemory(memory, lambda: world.now)
    return ModeSelection(modes, info, "draft", world.link(0.0), world.now, mode_memory)


def _begin(world: World, tokens: int, selection: ModeSelection, client: Any = None, read: int = 0) -> tuple[Stats, Run]:
    stats, options = Stats(mode=Mode.AUTO), Options(max_tokens=tokens, mode=Mode.AUTO)
    bounds = ResponseBounds("http://v", 1000, len(PROMPT) + tokens, frozenset({END}))

    def probe() -> None:
        if selection.probe_is_due(world.now):
            selection.probed(world.link(world.now), world.now)

    client, text, tell = client or Connection(), TextSession(PROMPT, read=read), StatsCounter(stats).take

    def begin(connection: Any, how: Options) -> Run:
        world.used.append(connection)
        tell(ModeChosen(how.mode), world.now)
        try:
            yield from world.begin(text, how, tell)
        finally:
            tell(Ended(text.finish_reason), world.now)

    run = automatic(client, begin, lambda: (selection, probe), lambda: bounds, text, options, tell, world.clock)
    return stats, run


def _write(world: World, tokens: int, selection: ModeSelection | None = None) -> tuple[Stats, list[int]]:
    stats, run = _begin(world, tokens, selection or _selection(world))
    return stats, [token for committed in run for token, _ in committed.tokens]


@pytest.mark.parametrize("fastest", MODES)
def test_fastest_mode_generates_most_of_the_text(fastest: Mode) -> None:
    rates = {Mode.REMOTE: 4.0, Mode.FUSED: 4.0, Mode.TARGET: 10.0}
    if fastest is not Mode.TARGET:  # this mode cannot be faster than its passes
        rates[fastest] = 50.0
    world = World(lambda _, mode: rates[mode])
    stats, tokens = _write(world, 400)
    assert tokens == stats.token_ids == [world.token(at) for at in range(3, 403)]
    assert stats.turns[-1].mode == fastest and stats.turns[-1].tokens > 280
    assert f"{fastest} measured {rates[fastest]:.1f}" in stats.why
    assert stats.finish_reason == "length"
    assert sum(turn.tokens for turn in stats.turns) == 400 and stats.rounds >= 400
    assert stats.total_time == pytest.approx(world.now)


@pytest.mark.parametrize("at", [3, 34, 35, 36, 70, 150])
def test_no_stretch_begins_after_the_end_token(at: int) -> None:
    world = World(lambda _, mode: 10.0)
    world.ends_at = at
    stats, written = _write(world, 300)
    assert written == [world.token(position) for position in range(3, at + 1)]
    assert stats.finish_reason == "stop"


def test_next_stretch_has_another_connection_that_is_connected() -> None:
    """It is connected while the stretch before runs."""
    world, client = World(lambda _, mode: 10.0), Connection()
    _, run = _begin(world, 400, _selection(world), client)
    for _ in run:
        pass
    assert world.used[0] is client and len(world.used) >= 3
    assert all(one is not other for one, other in pairwise(world.used))
    assert all(each.connected for each in world.used[1:])


def test_unread_tokens_are_part_of_the_text() -> None:
    """A stretch may know more tokens than were taken from it; the next stretch continues after all of them."""
    world = World(lambda _, mode: 10.0)
    begin, left_unread = world.begin, list[Committed]()

    def leaving_more(text: TextSession, options: Options, tell: Listener) -> Run:
        try:
            yield from begin(text, options, tell)
        finally:
            left = len(PROMPT) + options.max_tokens - len(text.known)
            more = [world.commit(text, tell) for _ in range(min(3, left))]
            left_unread.extend(more)
            text.unread.extend(more)

    world.begin = leaving_more  # type: ignore[method-assign]
    stats, written = _write(world, 400)
    assert written == stats.token_ids == [world.token(at) for at in range(3, 403)]
    assert stats.finish_reason == "length" and sum(turn.tokens for turn in stats.turns) == 400
    assert len(left_unread) >= 6 and len(world.begun) >= 3


def test_outage_does_not_lower_the_measured_rate() -> None:
    world = World(lambda _, mode: 50.0 if mode is Mode.REMOTE else 10.0)
    begin = world.begin

    def interrupted(text: TextSession, options: Options, tell: Listener) -> Run:
        for number, committed in enumerate(begin(text, options, tell)):
            if options.mode is Mode.REMOTE and number == 25:
                world.now += 60.0
                text.outages += 1
                tell(Resumed(number), world.now)
            yield committed

    world.begin = interrupted  # type: ignore[method-assign]
    stats, _ = _write(world, 400)
    assert "remote measured 50.0" in stats.why and stats.resumed


def test_changed_link_changes_the_mode() -> None:
    """Remote drafting is the fastest until the way there becomes long."""

    def rates(world: World, mode: Mode) -> float:
        far = world.link(world.now) > 0.01
        return {Mode.REMOTE: 5.0 if far else 50.0, Mode.FUSED: 30.0, Mode.TARGET: 10.0}[mode]

    world = World(rates, lambda now: 0.05 if now > 20.0 else 0.0002)
    stats, tokens = _write(world, 2000)
    assert tokens == [world.token(at) for at in range(3, 2003)]
    assert stats.turns[-1].mode == Mode.FUSED and "at a round trip of 50.0 ms" in stats.why
    assert max(stats.turns[:-1], key=lambda turn: turn.tokens).mode == Mode.REMOTE


def test_single_slow_probe_does_not_change_the_link() -> None:
    probes = []

    def link(now: float) -> float:
        probes.append(now)
        return 0.08 if len(probes) % 4 == 0 else 0.0002

    world = World(lambda _, mode: 50.0 if mode is Mode.REMOTE else 10.0, link)
    stats, _ = _write(world, 2000)
    assert len(probes) > 8 and len(stats.turns) <= 4


def test_selection_is_asked_once_for_each_stretch() -> None:
    """Another text may change the selection at any time; two runs of one mode would share a drafter."""
    world = World(lambda _, mode: 10.0)
    answers = iter([Mode.REMOTE, Mode.REMOTE, Mode.TARGET, Mode.REMOTE, Mode.TARGET])
    unread_in: list[tuple[Mode | None, int]] = []  # by mode: tokens that the drafter here has not read

    class Alternating(ModeSelection):
        def next(self, left: int, mode: Mode | None = None, written: int = 0, unread: int = 0) -> Mode:
            unread_in.append((mode, unread))
            return next(answers, Mode.TARGET)

    stats, _ = _write(world, 40, Alternating(MODES, INFO, "draft", 0.001, 0.0))
    modes = [turn.mode for turn in stats.turns]
    assert modes == [Mode.REMOTE, Mode.TARGET, Mode.REMOTE, Mode.TARGET]
    assert world.most_open == 1
    (begin, prompt), *others = unread_in
    assert begin is None and prompt > 0, "at the beginning, the prompt"
    assert all((unread == 0) == (mode is Mode.REMOTE) for mode, unread in others)
    assert [unread for mode, unread in others if mode is Mode.TARGET][-1] > 20


def test_probes_of_several_texts_are_counted_once() -> None:
    selection = ModeSelection([Mode.REMOTE, Mode.TARGET], INFO, "draft", 0.0005, 0.0)
    selection.add_measurement(Mode.REMOTE, 300, 1.0)
    selection.add_measurement(Mode.TARGET, 100, 1.0)
    assert not selection.probe_is_due(0.4)
    assert [selection.probe_is_due(0.6), selection.probe_is_due(0.6)] == [True, False], "one at a time"
    assert not selection.probe_is_due(9.0), "while the first one is under way"
    selection.probed(0.05, 9.0)
    assert not selection.probe_is_due(9.4) and selection.fastest is Mode.REMOTE
    assert selection.probe_is_due(9.5)
    selection.probed(None, 9.6)
    assert selection.fastest is Mode.REMOTE, "a failed probe is ignored"
    for now in (10.3, 11.3):
        assert selection.fastest is Mode.REMOTE and selection.probe_is_due(now)
        selection.probed(0.05, now)
    assert selection.fastest is None and selection.link == 0.05
    for now in (12.3, 13.3, 14.3):
        assert selection.probe_is_due(now)
        selection.probed(0.0006, now)
    assert selection.fastest is Mode.REMOTE, "measurements over a link hold when the link returns"


def test_time_of_the_reader_does_not_lower_the_measured_rate() -> None:
    world = World(lambda _, mode: 50.0 if mode is Mode.FUSED else 10.0)
    stats, run = _begin(world, 400, _selection(world))
    for _ in run:
        world.now += 1.0
    assert stats.why.startswith("fused measured 50.0, ")
    assert stats.turns[-1].mode == Mode.FUSED and stats.total_ms > 400e3


def test_memory_gives_the_first_mode_of_a_later_run(tmp_path: Path) -> None:
    """Even if it differs from the expected one: here mode remote is slower than its times suggest."""
    world = World(lambda _, mode: {Mode.REMOTE: 8.0, Mode.FUSED: 30.0, Mode.TARGET: 10.0}[mode])
    file = tmp_path / "modes.json"
    cold = _selection(world, memory=file)
    assert _write(world, 128, cold)[0].turns[0].mode == Mode.REMOTE
    cold.keep()
    warm = _selection(world, memory=file)
    stats, _ = _write(world, 128, warm)
    assert [turn.mode for turn in stats.turns] == [Mode.FUSED] and stats.why.startswith("fused measured 30.0, ")
    assert _write(world, 128, _selection(world))[0].turns[0].mode == Mode.REMOTE, "without the memory"


def test_draft_model_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, drafted_after = Ticks(0.0), list[list[int]]()

    class Slow:
        width = 1

        def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
            drafted_after.append([*text, *tails[0]])
            now.now += 0.5 if len(drafted_after) == 1 else 0.02
            return Expansion([Proposal(7, 0.5)], 1)

    told: list[float] = []
    monkeypatch.setattr(ModeRates, "drafts_in", lambda _, seconds: told.append(seconds))
    selection = ModeSelection(MODES, INFO, "draft", 0.001, 0.0)
    for _ in range(2):
        selection.time_draft_steps(Slow(), [1, 2, 3, 4], now)
    assert drafted_after == [[1, 2, *[7] * steps] for steps in range(6)], "each step continues the one before"
    assert told == [pytest.approx(0.02)]


class PingedClient(VerifierClient):
    """Replies to pings wait for `may`; each then returns the given round trip or raises the given error."""

    def __init__(self, answers: Sequence[float | Exception]) -> None:
        super().__init__("http://v", transport=Canned())
        self.answers, self.may, self.pinged = [*answers], threading.Event(), threading.Semaphore(0)

    def ping(self) -> float:
        self.pinged.release()
        assert self.may.wait(10.0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_failed_probes_are_ignored() -> None:
    selection, client = (
        ModeSelection(MODES, INFO, "draft", 0.001, 0.0),
        PingedClient([ConnectionLost("gone"), 0.08, 0.3, 0.08, 0.095, 0.09, 0.08]),
    )
    client.may.set()
    now = Ticks(0.6)
    for answers_left in (6, 4, 2, 0):
        with closing(LatencyProbe(client, selection, now)) as probe:
            probe()
        assert len(client.answers) == answers_left
    assert selection.link == 0.08
