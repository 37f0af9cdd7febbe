"""Texts of a pair that loses its session or verifier: they resume, or end at once when they are closed."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import (
    Custom,
    DraftModel,
    Expansion,
    Mode,
    Options,
    Outage,
    Pair,
    Proposal,
    Sampling,
    Strategy,
    Vocabulary,
)
from drafter_client.errors import BadOption, ConnectionLost
from drafter_client.modes.auto import ModeSelection
from tests.drafter_client.another_model import Links
from tests.drafter_client.support import Held, Verifier, forget_all, held, plain, read, serving

PROMPT = "def f(x):"
TOY = DraftModel(Path("1"), "scripted")
LONG = Options(max_tokens=300, temperature=0.8, seed=3)
pytestmark = pytest.mark.usefixtures("no_waiting")
EACH_MODE = pytest.mark.parametrize("mode", Mode)
TARGET = ScriptedBackend(Script(seed=1))
REMOTE = ["--backend", "scripted", "--draft-model", "1"]


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    slow = Held(Script(seed=1, seconds_per_pass=0.002))
    with serving(slow, draft_backend="ngram") as running:
        yield running


@pytest.fixture(autouse=True)
def _no_thread_is_left(verifier: Verifier) -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    # Threads named "fused…" belong to the verifier.
    left = [each for each in set(threading.enumerate()) - before if not each.name.startswith("fused")]
    for thread in left:
        thread.join(10)  # the last thread of asyncio's executors may still be ending
    assert not [thread for thread in left if thread.is_alive()]


def _expected(options: Options = LONG) -> list[int]:
    return plain(TARGET, TARGET.vocabulary.encode(PROMPT), options.max_tokens, options.sampling)


@EACH_MODE
@pytest.mark.parametrize("after", [1, 150])
def test_deleted_session_is_opened_again(verifier: Verifier, mode: Mode, after: int) -> None:
    with Pair(verifier.url, TOY) as pair, pair.generate(PROMPT, replace(LONG, mode=mode)) as text:
        tokens = read(text, after, held(verifier, after, partial(forget_all, verifier)))
    assert tokens == _expected() == text.stats.token_ids
    # In mode auto the next stretch may open the session again before its loss is noticed.
    assert len(text.stats.resumed) == 1 or (mode is Mode.AUTO and not text.stats.resumed)
    assert all(at >= after for at in text.stats.resumed)
    assert sum(text.stats.sources.values()) == len(tokens) and text.stats.finish_reason == "length"
    assert verifier.sessions == 0


@pytest.mark.parametrize("strategy", [Strategy.PROBABILISTIC, Strategy.THRESHOLD, Strategy.GREEDY])
def test_text_resumes_under_every_strategy(verifier: Verifier, strategy: Strategy) -> None:
    threshold = 0.3 if strategy is Strategy.THRESHOLD else None
    options = replace(LONG, max_tokens=60, strategy=strategy, threshold=threshold, explain=True)
    with Pair(verifier.url, TOY) as pair, pair.generate(PROMPT, options) as text:
        tokens = read(text, 20, partial(forget_all, verifier))
    assert len(tokens) == 60 == len(text.stats.decisions) and text.stats.resumed
    assert [each.token for each in text.stats.decisions] == tokens


@EACH_MODE
def test_text_resumes_when_the_verifier_is_back(verifier: Verifier, links: Links, mode: Mode) -> None:
    outages: list[Outage] = []

    def restore(outage: Outage) -> None:
        outages.append(outage)
        links.out.clear()

    with (
        Pair(verifier.url, TOY, on_outage=restore) as pair,
        pair.generate(PROMPT, replace(LONG, mode=mode)) as text,
    ):
        tokens = read(text, 40, held(verifier, 40, partial(links.out.add, verifier.url)))
    assert tokens == _expected()
    assert text.stats.resumed or mode is Mode.AUTO  # in mode auto the next stretch may open the session anew
    assert outages[0].why == "nothing answers" and outages[0].patience == 300.0


@EACH_MODE
def test_end_of_patience_leaves_the_text_so_far(verifier: Verifier, links: Links, mode: Mode) -> None:
    with Pair(verifier.url, TOY, patience=0.1) as pair, pair.generate(PROMPT, replace(LONG, mode=mode)) as text:
        tokens: list[int] = []
        with pytest.raises(ConnectionLost, match="broke"):
            read(text, 40, held(verifier, 40, partial(links.out.add, verifier.url)), tokens)
        links.out.clear()
        assert len(tokens) >= 40 and tokens == _expected()[: len(tokens)] == text.stats.token_ids
    forget_all(verifier)


@pytest.mark.parametrize("patience", [-1.0, float("nan")])
def test_negative_patience_is_refused(verifier: Verifier, patience: float) -> None:
    with pytest.raises(BadOption, match="patience must be at least 0 seconds"):
        Pair(verifier.url, None, patience=patience)


def _wait_for_failed_uses(links: Links) -> None:
    """Return when the drafter waits for the verifier."""
    for _ in range(12):
        assert links.failed_uses.acquire(timeout=10)


@EACH_MODE
@pytest.mark.parametrize("end", ["the text", "the pair", "the waiting"])
def test_closing_does_not_wait_for_a_lost_verifier(verifier: Verifier, links: Links, mode: Mode, end: str) -> None:
    with ThreadPoolExecutor(1) as pool, Pair(verifier.url, TOY) as pair:
        text = pair.generate(PROMPT, replace(LONG, mode=mode))
        reading = pool.submit(read, text, 40, partial(links.out.add, verifier.url))
        _wait_for_failed_uses(links)
        {"the text": text.close, "the pair": pair.close, "the waiting": pair.wait_no_more}[end]()
        assert len(reading.result(10)) >= 40
        assert text.stats.finish_reason is None
    links.out.clear()
    forget_all(verifier)


class GrowingText:
    """A drafter that checks that its text only grows."""

    width = 1

    def __init__(self) -> None:
        self.text: list[int] = []

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        assert list(text[: len(self.text)]) == self.text, "the text may only grow"
        self.text = list(text)
        return Expansion([Proposal(int(TARGET.logits_after([*text, *tail]).argmax()), 0.9) for tail in tails], 1)


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.AUTO])
def test_drafters_text_only_grows_over_outages_and_modes(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """Also for a prompt that is read in chunks, and in mode auto after stretches of other modes."""
    calls = count()
    monkeypatch.setattr(ModeSelection, "next", lambda *_: (Mode.REMOTE, Mode.TARGET)[next(calls) // 8 % 2])
    made: list[GrowingText] = []

    def make(vocabulary: Vocabulary, sampling: Sampling) -> GrowingText:
        made.append(GrowingText())
        return made[-1]

    prompt = [number % 250 for number in range(700)]
    options = Options(max_tokens=120, mode=mode, lookup=False)
    with Pair(verifier.url, Custom(make)) as pair, pair.generate(prompt, options) as text:
        tokens = read(text, 30, held(verifier, 30, partial(forget_all, verifier), len(prompt), room=50))
    expected = list(prompt)
    for _ in range(120):
        expected.append(int(TARGET.logits_after(expected).argmax()))
    assert prompt + tokens == expected and len(made) == 1
    assert text.stats.resumed or mode is Mode.AUTO  # in mode auto the next stretch may open the session again
    assert made[0].text[: len(prompt)] == prompt
