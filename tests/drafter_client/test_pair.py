"""Pair with a real verifier: events, ways to end a text, concurrent texts, and errors by type."""

import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import drafter_client
from backends.scripted import Script, ScriptedBackend
from drafter_client import (
    Custom,
    Drafter,
    DrafterError,
    DraftModel,
    Expansion,
    Finished,
    Lookup,
    Mode,
    Options,
    Pair,
    Proposal,
    Source,
    SpecPairError,
    Stats,
    Strategy,
    Tokens,
    TokenSource,
    Vocabulary,
)
from drafter_client.draft_sources import OpenedSource
from drafter_client.errors import (
    BadKey,
    BadOption,
    BadPrompt,
    PairBusy,
    StrategyRefused,
    TraceError,
    VerifierUnreachable,
)
from drafter_client.generation import events
from drafter_client.http.client import VerifierClient
from drafter_client.trace.writer import TraceFolder
from specpair.drafters.base import NGRAM_LOOKUP
from specpair.protocol.errors import NoChatTemplate, PromptTooLong
from specpair.speculation.policy.schedule import Mechanisms
from tests.drafter_client.support import Held, Scenario, Verifier, plain, serving
from tests.paths import ROOT
from tests.waiting import until

PROMPT = "def f(x):"
TOY = DraftModel(Path("1"), "scripted")
JUNK = Custom(lambda vocabulary, sampling: Scenario(lambda tokens: len(tokens) % 256), "junk")
SOURCES = {"model": TOY, "lookup": Lookup(), "custom": JUNK}
EACH_SOURCE = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
SAMPLED = Options(max_tokens=40, temperature=0.9, seed=5)

pytestmark = pytest.mark.usefixtures("no_session_or_thread_is_left")


@pytest.fixture
def no_session_or_thread_is_left(verifier: Verifier) -> Iterator[None]:
    """No session is left on the verifier, and no thread of the drafter."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(5.0)  # it may be about to end
    assert set(threading.enumerate()) <= before
    assert verifier.sessions == 0


def _ids(text: str) -> list[int]:
    return ScriptedBackend(Script(seed=1)).vocabulary.encode(text)


def _expected(options: Options, prompt: str = PROMPT) -> list[int]:
    return plain(ScriptedBackend(Script(seed=1)), _ids(prompt), options.max_tokens, options.sampling)


@EACH_SOURCE
@pytest.mark.parametrize("options", [Options(max_tokens=40), SAMPLED], ids=["greedy", "sampled"])
def test_text_equals_target_alone_with_any_source(verifier: Verifier, source: Source, options: Options) -> None:
    with Pair(verifier.url, source) as pair:
        *events, last = pair.generate(PROMPT, options)
    assert isinstance(last, Finished) and last.token_ids == _expected(options)
    tokens = [token for event in events if isinstance(event, Tokens) for token in event.tokens]
    assert [token.id for token in tokens] == last.token_ids
    assert last.text.startswith("".join(token.text for token in tokens)) and last.finish_reason == "length"
    assert sum(last.stats.sources.values()) == last.stats.generated_tokens == 40


@EACH_SOURCE
@pytest.mark.parametrize("lockstep", [False, True], ids=["overlapped", "lockstep"])
def test_statistics_equal_those_of_the_events(verifier: Verifier, source: Source, lockstep: bool) -> None:
    with Pair(verifier.url, source) as pair, pair.generate(PROMPT, Options(max_tokens=90, lockstep=lockstep)) as text:
        sources = [token.source for event in text if isinstance(event, Tokens) for token in event.tokens]
    stats = text.stats
    assert len(sources) == stats.generated_tokens == sum(stats.sources.values())
    if lockstep:
        assert {source: sources.count(source) for source in set(sources)} == dict(stats.sources)
        assert sources.count(TokenSource.ACCEPTED) == stats.accepted and sources.count(TokenSource.TARGET_DECODED) == 0
        assert sources.count(TokenSource.BONUS) + sources.count(TokenSource.RECOVERED) == 1 + stats.rounds


def test_target_alone_needs_no_draft_source(verifier: Verifier) -> None:
    options = Options(max_tokens=12, mode=Mode.TARGET)
    with Pair(verifier.url, draft=None) as pair:
        last = pair.generate(PROMPT, options).read()
        assert last.token_ids == _expected(options) and len(last.stats.token_ms) == 12
        assert pair.generate(PROMPT, Options(max_tokens=12)).read().stats.mode == "target", "nothing else is there"
        with pytest.raises(BadOption, match="mode remote: this pair has no drafter"):
            pair.generate(PROMPT, Options(mode=Mode.REMOTE))
        with pytest.raises(BadOption, match=r"has no draft model\. Start it with VERIFIER_DRAFT_MODEL"):
            pair.generate(PROMPT, Options(mode=Mode.FUSED))


def test_modes_may_change_between_texts(verifier: Verifier) -> None:
    with Pair(verifier.url, TOY) as pair:
        texts = [pair.generate(PROMPT, Options(max_tokens=9, mode=mode)).read() for mode in ("remote", "target") * 2]  # type: ignore[arg-type]
    assert [text.stats.mode for text in texts] == ["remote", "target"] * 2
    assert len({text.text for text in texts}) == 1


def test_a_pair_tells_to_which_mode_auto_is_settled(verifier: Verifier) -> None:
    fixed = Options(max_tokens=9, draft_n=2)
    with Pair(verifier.url, TOY) as pair:
        assert pair.settled_mode() == pair.generate(PROMPT).options.mode == "auto"
        generation = pair.generate(PROMPT, fixed)
        assert pair.settled_mode(fixed) == generation.options.mode == generation.read().stats.mode == "remote"
    with Pair(verifier.url, draft=None) as pair:
        assert pair.settled_mode() == pair.generate(PROMPT).options.mode == "target"


def test_prompt_may_be_token_ids(verifier: Verifier) -> None:
    with Pair(verifier.url, TOY) as pair:
        assert pair.encode(PROMPT) == _ids(PROMPT)
        generation = pair.generate(_ids(PROMPT), Options(max_tokens=5))
        assert generation.prompt_ids == _ids(PROMPT) and generation.options.seed is not None
        assert generation.read().token_ids == _expected(Options(max_tokens=5))


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [
        ([], "the prompt is empty, as the model reads it"),
        ([97, 258], "the prompt holds 258, which is no token id of the target: its ids are 0 to 257"),
        ([-1], "the prompt holds -1, which is no token id"),
    ],
)
def test_invalid_prompt_is_refused_at_once(verifier: Verifier, prompt: list[int], complaint: str) -> None:
    with Pair(verifier.url, TOY) as pair, pytest.raises(BadPrompt, match=complaint):
        pair.generate(prompt)


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.TARGET])
def test_verifiers_refusal_is_raised_by_the_first_step(verifier: Verifier, mode: Mode) -> None:
    with Pair(verifier.url, Lookup()) as pair:
        text = pair.generate([97] * 2000, Options(mode=mode))
        with pytest.raises(PromptTooLong) as refused:
            next(text)
        assert isinstance(refused.value, SpecPairError)
        assert pair.generate(PROMPT, Options(max_tokens=3)).read().token_ids, "the next text is not affected"


def test_errors_at_the_start_have_types(verifier: Verifier) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        nowhere = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(VerifierUnreachable) as unreachable:
        Pair(nowhere, Lookup())
    assert isinstance(unreachable.value, DrafterError)
    with serving(api_key="sesame") as locked:
        with pytest.raises(BadKey):
            Pair(locked.url, Lookup(), api_key="wrong")
        with Pair(locked.url, Lookup(), api_key="sesame") as pair:
            assert pair.generate(PROMPT, Options(max_tokens=3)).read().token_ids
    with pytest.raises(drafter_client.BackendError, match="no such model file"):
        Pair(verifier.url, DraftModel(Path("/nowhere/x.gguf")))
    too_few: list[dict[str, Any]] = [{"texts": 0}, {"branches": 0}]
    for wrong in too_few:
        with pytest.raises(BadOption, match=r"must be at least 1, got 0"):
            Pair(verifier.url, Lookup(), **wrong)


def test_chat_without_a_template_is_refused(verifier: Verifier) -> None:
    with Pair(verifier.url, Lookup()) as pair, pytest.raises(NoChatTemplate):
        pair.chat("hello")


WAYS: dict[str, Callable[[Pair], None]] = {}


def _way(end: Callable[[Pair], None]) -> Callable[[Pair], None]:
    WAYS[end.__name__] = end
    return end


LONG = Options(max_tokens=900)


@_way
def _closed(pair: Pair) -> None:
    text = pair.generate(PROMPT, LONG)
    next(text)
    text.close()


@_way
def _left_by_break(pair: Pair) -> None:
    for _ in pair.generate(PROMPT, LONG):
        break


@_way
def _left_by_an_error(pair: Pair) -> None:
    with suppress(ZeroDivisionError), pair.generate(PROMPT, LONG) as text:
        next(text)
        raise ZeroDivisionError


@_way
def _never_begun(pair: Pair) -> None:
    pair.generate(PROMPT, LONG)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("options", [LONG, Options(max_tokens=900, mode=Mode.TARGET)], ids=["remote", "target"])
def test_text_left_early_makes_room_for_the_next(
    verifier: Verifier, way: Callable[[Pair], None], options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "LONG", options)
    threads = set(threading.enumerate())
    with Pair(verifier.url, TOY) as pair:
        for _ in range(3):
            way(pair)
            left = {thread.name for thread in set(threading.enumerate()) - threads}
            assert left <= {"latency-probe_0"}, "that one is the pair's, if a probe was due"
        assert pair.generate(PROMPT, Options(max_tokens=6)).read().token_ids == _expected(Options(max_tokens=6))


def test_closing_the_pair_ends_its_texts(verifier: Verifier) -> None:
    with Pair(verifier.url, TOY) as pair:
        text = pair.generate(PROMPT, LONG)
        next(text)
        assert verifier.sessions == 1
    assert verifier.sessions == 0 and list(text) == [] and text.stats.finish_reason is None
    with pytest.raises(RuntimeError, match="this pair is closed"):
        pair.generate(PROMPT)


@pytest.mark.parametrize("after", [0, 40], ids=["in the prefill", "in a round"])
@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.TARGET, Mode.AUTO])
@pytest.mark.parametrize("end", ["the text", "the pair", "all texts"])
def test_ending_a_text_in_another_thread_waits_for_no_pass(mode: Mode, after: int, end: str) -> None:
    target = Held(Script(seed=1))
    options = replace(LONG, mode=mode, lockstep=end == "all texts" and mode is Mode.REMOTE)
    with serving(target) as verifier, ThreadPoolExecutor(1) as pool, Pair(verifier.url, TOY) as pair:
        reached = threading.Event()
        target.go(len(PROMPT) + after)
        target.beyond(len(PROMPT) + after, reached.set)
        text = pair.generate(PROMPT, options)
        reading = pool.submit(list, text)
        assert reached.wait(20)
        {"the text": text.close, "the pair": pair.close, "all texts": pair.end_texts}[end]()
        assert not any(isinstance(event, Finished) for event in reading.result(20)), "while the pass goes on"
        until(lambda: verifier.sessions == 0, "the session was not released")
        target.go()
        if end == "the text":
            again = pair.generate(PROMPT, replace(LONG, mode=mode)).read()
            assert again.token_ids == _expected(LONG), "the place is free, and its connection works"


def test_closing_the_pair_waits_for_a_step_in_another_thread(verifier: Verifier) -> None:
    """A running draft step must not lose its draft model."""
    drafting, go = threading.Event(), threading.Event()

    def next_token(tokens: Sequence[int]) -> int:
        drafting.set()
        assert go.wait(10.0)
        return 0

    options = Options(max_tokens=90, lockstep=True, draft_n=1, lookup=False)
    pair = Pair(verifier.url, Custom(lambda vocabulary, sampling: Scenario(next_token)))
    text = pair.generate(PROMPT, options)
    closing_begun, wait_no_more = threading.Event(), text.wait_no_more

    def begun() -> None:
        wait_no_more()
        closing_begun.set()

    text.wait_no_more = begun  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(list, text)
        assert drafting.wait(10.0)
        closing_it = pool.submit(pair.close)
        assert closing_begun.wait(10.0) and not closing_it.done()
        go.set()
        closing_it.result()
        assert not any(isinstance(event, Finished) for event in reading.result())
    assert text.stats.finish_reason is None


class RecordingSource:
    """A lookup that records when it is closed."""

    closed = False

    @contextmanager
    def open(self, client: VerifierClient, branches: int, texts: int) -> Iterator[OpenedSource]:
        with Lookup().open(client, branches, texts) as drafting:
            yield drafting
        self.closed = True


def test_error_at_the_end_of_a_text_still_closes_the_pair(verifier: Verifier, tmp_path: Path) -> None:
    folder, source = tmp_path / "profile", RecordingSource()
    pair = Pair(verifier.url, source, observer=TraceFolder(folder))
    text = pair.generate(PROMPT, LONG)
    next(text)
    shutil.rmtree(folder)  # so that the trace cannot be written
    with pytest.raises(TraceError):
        pair.close()
    assert source.closed and list(text) == []


class Watching:
    """Keeps the events of each text."""

    def __init__(self) -> None:
        self.texts: list[list[events.RunEvent]] = []

    @contextmanager
    def run(self, stats: Stats, settings: Mapping[str, Any]) -> Iterator[events.Listener]:
        told: list[events.RunEvent] = []
        yield lambda event, now: told.append(event)
        ended = [event for event in told if isinstance(event, events.Ended)]
        assert ended[-1].finish_reason == stats.finish_reason == "length" and settings["max_tokens"] == 40
        self.texts.append(told)


@pytest.mark.parametrize("mode", Mode)
def test_observer_gets_every_token_once_and_each_response_after_its_request(mode: Mode) -> None:
    watching = Watching()
    with serving(draft_backend="ngram") as verifier, Pair(verifier.url, TOY, observer=watching) as pair:
        ids = pair.generate(PROMPT, replace(SAMPLED, mode=mode)).read().token_ids
    [told] = watching.texts
    commits = [event for event in told if isinstance(event, events.Committed)]
    assert [token for event in commits for token, _ in event.tokens] == ids
    assert [event.position - commits[0].position for event in commits] == [
        sum(len(each.tokens) for each in commits[:before]) for before in range(len(commits))
    ]
    sent = {event.in_flight_draft: at for at, event in enumerate(told) if isinstance(event, events.Sent)}
    answered = {event.in_flight_draft: at for at, event in enumerate(told) if isinstance(event, events.Answered)}
    assert all(sent[draft] < at for draft, at in answered.items())
    assert not sent or any(isinstance(event, events.Opened) for event in told)


class Refusing:
    """Refuses every strategy."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, vocabulary: Vocabulary, sampling: object) -> Drafter:
        self.calls += 1
        raise StrategyRefused("by no strategy")


@pytest.mark.parametrize("mode", Mode)
def test_drafter_is_made_only_for_modes_that_may_use_it(mode: Mode) -> None:
    refusing = Refusing()
    with serving(draft_backend="ngram") as verifier, Pair(verifier.url, Custom(refusing)) as pair:
        text = pair.generate(PROMPT, Options(max_tokens=9, mode=mode, strategy=Strategy.PROBABILISTIC))
        if mode in (Mode.FUSED, Mode.TARGET):
            assert len(text.read().token_ids) == 9 and refusing.calls == 0
        else:
            with pytest.raises(StrategyRefused, match="by no strategy"):
                next(text)
            assert refusing.calls == 1


@pytest.mark.parametrize("mode", Mode)
def test_text_left_early_reports_its_sampling(mode: Mode) -> None:
    options = Options(max_tokens=300, mode=mode, strategy=Strategy.THRESHOLD, threshold=0.2, temperature=0.8, seed=4)
    with serving(draft_backend="ngram") as verifier, Pair(verifier.url, Lookup()) as pair:
        whole = pair.generate(PROMPT, options).read().stats
        with pair.generate(PROMPT, options) as text:
            next(text)
    assert text.stats.finish_reason is None and text.stats.sampling == whole.sampling
    assert whole.sampling["threshold"] == 0.2 and whole.sampling["strategy"] == "threshold"
    target_only = {turn.mode for turn in text.stats.turns} == {Mode.TARGET} or mode is Mode.TARGET
    assert text.stats.draft_model == ("" if target_only else NGRAM_LOOKUP)


@pytest.mark.parametrize(
    ("mode", "more"),
    [(Mode.REMOTE, set()), (Mode.AUTO, {"connecting_0", "latency-probe_0"}), (Mode.TARGET, set())],
    ids=["remote", "auto", "target"],
)
def test_text_has_four_threads_at_most_and_one_for_each_connection(
    verifier: Verifier, mode: Mode, more: set[str]
) -> None:
    """The caller's thread is the fourth. docs/architecture.md says what each is for."""
    before, seen = threading.enumerate(), set[threading.Thread]()
    with Pair(verifier.url, TOY) as pair:
        for _ in pair.generate(PROMPT, Options(max_tokens=40, mode=mode)):
            seen |= {each for each in threading.enumerate() if each not in before}
    connections = {"stream", *(f"verify {number}" for number in range(1, 1 + Mechanisms().in_flight))} | more
    assert {each.name for each in seen} <= {"draft", "react", "index"} | connections
    assert len(seen) == len({each.name for each in seen})


def test_one_text_too_many_is_refused(verifier: Verifier) -> None:
    with Pair(verifier.url, Lookup(), texts=2) as pair:
        one, other, third = (pair.generate(PROMPT, LONG) for _ in range(3))
        next(one), next(other)
        with pytest.raises(PairBusy, match="this pair writes 2 texts at a time: end one, or make the pair with more"):
            next(third)
        other.close()
        assert next(pair.generate(PROMPT, LONG))


def test_too_many_texts_for_a_draft_model_are_refused(verifier: Verifier) -> None:
    with pytest.raises(BadOption, match="texts is 257: a draft model holds 256 at a time, or fewer"):
        Pair(verifier.url, TOY, texts=257)


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.TARGET])
def test_concurrent_texts_do_not_mix(verifier: Verifier, mode: Mode) -> None:
    """Also without a local vocabulary, so that the verifier encodes prompts while it generates other texts."""
    prompts = [f"def {name}(x):" for name in "abcdefgh"]
    options = Options(max_tokens=60, temperature=0.7, seed=11, mode=mode)
    with Pair(verifier.url, Lookup(), texts=4) as pair, ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda prompt: pair.generate(prompt, options).read(), prompts))
    assert [text.token_ids for text in texts] == [_expected(options, prompt) for prompt in prompts]


def test_prompts_can_be_encoded_during_generation(verifier: Verifier) -> None:
    with Pair(verifier.url, Lookup()) as pair:
        text = pair.generate(PROMPT, Options(max_tokens=30, mode=Mode.TARGET))
        next(text)
        assert pair.encode("in between") == _ids("in between")
        assert text.read().token_ids == _expected(Options(max_tokens=30))


class TableDrafter:
    """Drafts the tokens of a table."""

    width = 1

    def __init__(self, table: Sequence[int]) -> None:
        self._table = table

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        at = len(text) + len(tails[0])
        token = self._table[at] if at < len(self._table) else 0
        return Expansion([Proposal(token, 0.99)], 1)


def test_custom_drafter_is_used(verifier: Verifier) -> None:
    options, made = Options(max_tokens=60, seed=3, temperature=0.8, lockstep=True, draft_n=3, lookup=False), []
    table = [*_ids(PROMPT), *_expected(options)]

    def make(vocabulary: Vocabulary, sampling: object) -> Drafter:
        made.append((vocabulary.size, sampling))
        return TableDrafter(table)

    with Pair(verifier.url, Custom(make, "a table")) as pair:
        texts = [pair.generate(PROMPT, options).read() for _ in range(2)]
    assert made == [(258, options.sampling)] * 2, "a new one for each text"
    for text in texts:
        assert text.token_ids == _expected(options) and text.stats.draft_model == "a table"
        assert text.stats.accepted == text.stats.drafted > 30


@pytest.mark.parametrize("lockstep", [False, True], ids=["overlapped", "lockstep"])
def test_error_of_a_custom_drafter_reaches_the_reader(verifier: Verifier, lockstep: bool) -> None:
    def fail(tokens: Sequence[int]) -> int:
        raise LookupError("no such word")

    with Pair(verifier.url, Custom(lambda vocabulary, sampling: Scenario(fail))) as pair:
        options = Options(max_tokens=900, lockstep=lockstep, draft_n=2)
        with pytest.raises(LookupError, match="no such word"):
            pair.generate(PROMPT, options).read()
        assert pair.generate(PROMPT, Options(max_tokens=4, mode=Mode.TARGET)).read().token_ids


def test_library_prints_nothing(verifier: Verifier, capfd: pytest.CaptureFixture[str]) -> None:
    with Pair(verifier.url, TOY) as pair:
        pair.generate(PROMPT, Options(max_tokens=4)).read()
    assert capfd.readouterr() == ("", "")


def test_all_names_are_exported() -> None:
    assert sorted(drafter_client.__all__) == drafter_client.__all__
    assert all(hasattr(drafter_client, name) for name in drafter_client.__all__)


TYPED = """
import asyncio
from collections.abc import Sequence

from drafter_client import (
    AsyncPair, Custom, Drafter, Event, Expansion, Finished, Options, Pair, Proposal, Sampling, Tokens, Vocabulary,
)


class Mine:
    width = 1

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        return Expansion([Proposal(0, 0.5)], 1)


def make(vocabulary: Vocabulary, sampling: Sampling) -> Drafter:
    return Mine()


def sync() -> str:
    with Pair("http://v", Custom(make)) as pair, pair.generate("a", Options(max_tokens=4)) as text:
        for event in text:
            reveal_type(event)
            if isinstance(event, Tokens):
                print(event.text, event.tokens[0].source.value)
        return text.text


async def main() -> Finished:
    async with AsyncPair("http://v") as pair:
        async for event in pair.generate([1, 2]):
            reveal_type(event)
        return await pair.generate("a").read()
"""


def test_programs_examples_and_pages_pass_strict_mypy(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TYPED)
    examples = sorted(str(path) for path in (ROOT / "examples").glob("*.py"))
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    pages.remove(ROOT / "docs" / "agents.md")  # its programs use libraries that are not installed here
    blocks = [
        block for page in pages for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    ]
    assert len(blocks) >= 6
    for at, block in enumerate(blocks):
        (tmp_path / f"page_{at}.py").write_text(block, encoding="utf-8")
        examples.append(str(tmp_path / f"page_{at}.py"))
    command = [sys.executable, "-m", "mypy", "--strict", str(program), *examples]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    module = "drafter_client.generation.generation"
    assert ran.stdout.count(f'Revealed type is "{module}.Tokens | {module}.Finished"') == 2
