"""Mode `auto`: the fastest mode writes the text, of which nothing is lost or doubled; and again over another link."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.auto import Chooser, Run, automatic
from drafter_client.observer import Committed
from drafter_client.origin import Origin
from drafter_client.replies import Bounds
from drafter_client.stats import Stats
from tests.drafter_client.support import Verifier

PROMPT = [1, 2, 3]
MODES = [Mode.REMOTE, Mode.FUSED, Mode.TARGET]
END = 999
BOUNDS = Bounds("http://v", 1000, 10_000)


class World:
    """Modes that write a given text at given rates, by a clock that only they move; and a link."""

    def __init__(self, rates: Callable[["World", Mode], float], link: Callable[[float], float] = lambda _: 1.0) -> None:
        self.now = 0.0
        self.rates, self.link = rates, link
        self.begun: list[tuple[Mode, int]] = []  # and how many tokens were known
        self.open: list[Mode] = []
        self.most_open = 0
        self.ends_at: int | None = None

    def clock(self) -> float:
        return self.now

    def token(self, position: int) -> int:
        return END if position == self.ends_at else position * 7 % 100

    def begin(self, _client: Any, text: list[int], options: Options, stats: Stats) -> Run:
        assert options.max_tokens > 0 and END not in text
        self.begun.append((options.mode, len(text)))
        self.open.append(options.mode)
        self.most_open = max(self.most_open, len(self.open))
        try:
            for at in range(len(text), len(text) + options.max_tokens):
                self.now += 1 / self.rates(self, options.mode)
                stats.rounds += 1
                yield Committed([(self.token(at), Origin.FREE)])
                if self.token(at) == END:
                    stats.finish_reason = "stop"
                    return
            stats.finish_reason = "length"
        finally:
            self.open.remove(options.mode)


class Link:
    """What `automatic` needs of a client: further connections, and the round trip."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.round_trip_ms = world.link(0.0)

    def another(self) -> "Link":
        return Link(self._world)

    def ping(self) -> None:
        self.round_trip_ms = self._world.link(self._world.now)

    def close(self) -> None:
        pass


def _write(world: World, tokens: int, chooser: Chooser | None = None) -> tuple[Stats, list[int]]:
    stats, options = Stats(), Options(max_tokens=tokens, mode=Mode.AUTO)
    client: Any = Link(world)
    bounds = Bounds("http://v", 1000, len(PROMPT) + tokens, frozenset({END}))
    chooser = chooser or Chooser(MODES, client.round_trip_ms)
    run = automatic(client, world.begin, chooser, bounds, PROMPT, options, stats, world.clock)
    return stats, [token for committed in run for token, _ in committed.tokens]


@pytest.mark.parametrize("fastest", MODES)
def test_the_fastest_mode_writes_the_rest(fastest: Mode) -> None:
    world = World(lambda _, mode: 50.0 if mode is fastest else 10.0)
    stats, tokens = _write(world, 400)
    assert tokens == stats.token_ids == [world.token(at) for at in range(3, 403)]
    assert stats.turns[-1].mode == fastest and stats.turns[-1].tokens > 300
    assert f"{fastest} 50.0" in stats.why
    assert stats.finish_reason == "length"
    assert sum(turn.tokens for turn in stats.turns) == 400 and stats.rounds >= 400
    assert stats.total_ms == pytest.approx(1e3 * world.now)


@pytest.mark.parametrize("tokens", [1, 31, 32, 33, 64, 97])
def test_texts_that_end_while_modes_are_tried(tokens: int) -> None:
    world = World(lambda _, mode: 10.0)
    stats, written = _write(world, tokens)
    assert written == [world.token(at) for at in range(3, 3 + tokens)]
    assert stats.finish_reason == "length" and not world.open


@pytest.mark.parametrize("at", [3, 34, 35, 36, 70, 150])
def test_nothing_is_begun_behind_the_end(at: int) -> None:
    world = World(lambda _, mode: 10.0)
    world.ends_at = at
    stats, written = _write(world, 300)
    assert written == [world.token(position) for position in range(3, at + 1)]
    assert stats.finish_reason == "stop"


def test_a_session_is_held_until_the_next_one_has_begun() -> None:
    world = World(lambda _, mode: 10.0)
    _write(world, 400)
    assert world.most_open == 2 and not world.open


def test_another_link_is_another_choice() -> None:
    """Remote drafting is the fastest until the way there becomes long."""

    def rates(world: World, mode: Mode) -> float:
        far = world.link(world.now) > 10.0
        return {Mode.REMOTE: 5.0 if far else 50.0, Mode.FUSED: 30.0, Mode.TARGET: 10.0}[mode]

    world = World(rates, lambda now: 50.0 if now > 20.0 else 0.2)
    stats, tokens = _write(world, 2000)
    assert tokens == [world.token(at) for at in range(3, 2003)]
    assert stats.turns[-1].mode == Mode.FUSED and "at a round trip of 50.0 ms" in stats.why
    assert max(stats.turns[:-1], key=lambda turn: turn.tokens).mode == Mode.REMOTE


def test_one_slow_look_at_the_link_is_no_change() -> None:
    looks = []

    def link(now: float) -> float:
        looks.append(now)
        return 80.0 if len(looks) % 4 == 0 else 0.2

    world = World(lambda _, mode: 50.0 if mode is Mode.REMOTE else 10.0, link)
    stats, _ = _write(world, 2000)
    assert len(looks) > 8 and len(stats.turns) <= 4


def test_what_one_text_has_shown_holds_for_the_next() -> None:
    world = World(lambda _, mode: 50.0 if mode is Mode.FUSED else 10.0)
    chooser = Chooser(MODES, 1.0)
    _write(world, 200, chooser)
    stats, _ = _write(world, 200, chooser)
    assert [turn.mode for turn in stats.turns] == [Mode.FUSED]


def test_ending_it_early_ends_all_of_it() -> None:
    world = World(lambda _, mode: 10.0)
    client: Any = Link(world)
    stats = Stats()
    options, chooser = Options(max_tokens=300, mode=Mode.AUTO), Chooser(MODES, 1.0)
    run = automatic(client, world.begin, chooser, BOUNDS, PROMPT, options, stats, world.clock)
    with closing(run):
        for _ in range(50):
            next(run)
    assert not world.open
    assert sum(turn.tokens for turn in stats.turns) == 50 == len(stats.token_ids)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_the_targets_in_every_mode(verifier: Verifier, temperature: float) -> None:
    with Pair(verifier.url, DraftModel(Path("1"), "scripted")) as pair:
        texts = {}
        for mode in (*pair.modes, Mode.AUTO):
            options = Options(max_tokens=300, mode=mode, temperature=temperature, seed=3)
            texts[mode] = pair.generate("def f(x):", options).read().token_ids
        assert len(texts) >= 3
    assert all(text == texts[Mode.TARGET] for text in texts.values())
    assert verifier.sessions == 0
