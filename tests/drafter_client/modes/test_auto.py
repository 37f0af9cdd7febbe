"""Mode `auto`: the fastest mode generates the text, no token is lost or doubled, a changed link changes the mode."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drafter_client import Mode, Options
from drafter_client.generation.counting import StatsCounter
from drafter_client.generation.events import Committed, Ended, Listener, ModeChosen, Resumed
from drafter_client.http.text_session import ResponseBounds, TextSession
from drafter_client.modes.auto import ModeSelection, Run, automatic
from drafter_client.modes.memory import ModeMemory
from drafter_client.statistics import Stats
from specpair.drafters.warm_engine import PassTimes
from specpair.protocol.fingerprint import Fingerprint
from specpair.protocol.service_responses import ModelInfo
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.drafting.lookups import Lookups
from tests.drafter_client.http.fake_transports import model_info

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
        self.looks_up = False  # whether the present stretch is drafted by lookup alone
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


def _begin(
    world: World, tokens: int, selection: ModeSelection, client: Any = None, read: int = 0, lookup: bool = False
) -> tuple[Stats, Run]:
    stats, options = Stats(mode=Mode.AUTO), Options(max_tokens=tokens, mode=Mode.AUTO)
    bounds = ResponseBounds("http://v", 1000, len(PROMPT) + tokens, frozenset({END}))

    def probe() -> None:
        if selection.probe_is_due(world.now):
            selection.probed(world.link(world.now), world.now)

    client, text, tell = client or Connection(), TextSession(PROMPT, read=read), StatsCounter(stats).take

    def begin(connection: Any, how: Options, looks_up: bool) -> Run:
        world.used.append(connection)
        tell(ModeChosen(how.mode, looks_up=looks_up), world.now)
        world.looks_up = looks_up
        try:
            yield from world.begin(text, how, tell)
        finally:
            tell(Ended(text.finish_reason), world.now)

    lookups = partial(Lookups, in_text=True) if lookup else None
    pair = selection, probe
    return stats, automatic(client, begin, lambda: pair, lambda: bounds, text, options, tell, world.clock, lookups)


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


@pytest.mark.parametrize("lookup", [True, False])
def test_lookup_takes_over_where_the_text_repeats_itself(lookup: bool) -> None:
    """It does from token 100 on. The draft model takes the verifier's cores, and does not pay."""
    world = World(lambda world, mode: 10.0 if mode is Mode.TARGET else 40.0 if world.looks_up else 5.0)
    first = "lookup" if lookup else "target"
    times = PassTimes(token=0.2, read=0.01)
    modes = [Mode.REMOTE, Mode.TARGET]
    selection = ModeSelection(modes, INFO, "draft", 0.001, 0.0, times=times, shares_cores=True, lookups="also")
    stats, run = _begin(world, 400, selection, lookup=lookup)
    assert [token for committed in run for token, _ in committed.tokens] == [world.token(at) for at in range(3, 403)]
    assert stats.turns[-1].tokens > 230 and stats.why.startswith(f"{first} measured {40.0 if lookup else 10.0}")
    assert stats.turns[-1].mode == (Mode.REMOTE if lookup else Mode.TARGET)
    assert selection.next(60, found=selection.found() if lookup else None) == first, "the next text begins with it"
    assert selection.next(60) == "target", "a text in which lookup is off"


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
