"""Pair with a real verifier: events, ways to end a text, concurrent texts, and errors by type."""

import gc
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import drafter_client
from backends.scripted import Script, ScriptedBackend
from drafter_client import (
    Custom,
    DrafterError,
    DraftingPolicy,
    DraftModel,
    Finished,
    Lookup,
    Mode,
    Options,
    Pair,
    Source,
    SpecPairError,
    Tokens,
)
from drafter_client.errors import (
    BadKey,
    BadOption,
    BadPrompt,
    PairBusy,
    VerifierUnreachable,
)
from specpair.protocol.errors import PromptTooLong
from specpair.speculation.policy.draft_length import DraftLength
from tests.drafter_client.support import Held, Scenario, Verifier, plain, serving
from tests.paths import ROOT
from tests.waiting import no_thread_left, until

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
    with no_thread_left():
        yield
    assert verifier.sessions == 0


def _ids(text: str) -> list[int]:
    return ScriptedBackend(Script(seed=1)).vocabulary.encode(text)


def _expected(options: Options, prompt: str = PROMPT) -> list[int]:
    return plain(ScriptedBackend(Script(seed=1)), _ids(prompt), options.max_tokens, options.sampling)


class Two(DraftLength):
    def __init__(self, fixed: int | None, max_drafts: int) -> None:
        super().__init__(2, max_drafts)


class InTwos(DraftingPolicy):
    draft_length = Two


@pytest.mark.parametrize("policy", [InTwos, f"{__name__}:InTwos"], ids=["class", "name"])
def test_policy_of_the_user_s_own_decides_the_draft_length(
    verifier: Verifier, policy: type[DraftingPolicy] | str
) -> None:
    options = Options(max_tokens=40, lockstep=True, lookup=False)
    with Pair(verifier.url, TOY, policy=policy) as pair:
        last = pair.generate(PROMPT, options).read()
    assert last.token_ids == _expected(options)
    assert last.stats.drafted == 2 * last.stats.rounds > 20


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


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [
        ([], "the model reads the prompt as empty"),
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
    with pytest.raises(BadOption, match=r"policy: tests\.paths has no Nobody, which the drafting policy"):
        Pair(verifier.url, Lookup(), policy="tests.paths:Nobody")
    not_one: Any = int
    with pytest.raises(BadOption, match="policy: no drafting policy"):
        Pair(verifier.url, Lookup(), policy=not_one)


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


def test_one_text_too_many_is_refused(verifier: Verifier) -> None:
    with Pair(verifier.url, Lookup(), texts=2) as pair:
        one, other, third = (pair.generate(PROMPT, LONG) for _ in range(3))
        next(one), next(other)
        with pytest.raises(PairBusy, match="this pair writes 2 texts at a time: end one, or make the pair with more"):
            next(third)
        other.close()
        assert next(pair.generate(PROMPT, LONG))


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.TARGET])
def test_concurrent_texts_do_not_mix(verifier: Verifier, mode: Mode) -> None:
    """Also without a local vocabulary, so that the verifier encodes prompts while it generates other texts."""
    prompts = [f"def {name}(x):" for name in "abcdefgh"]
    options = Options(max_tokens=60, temperature=0.7, seed=11, mode=mode)
    with Pair(verifier.url, Lookup(), texts=4) as pair, ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda prompt: pair.generate(prompt, options).read(), prompts))
    assert [text.token_ids for text in texts] == [_expected(options, prompt) for prompt in prompts]


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


OURS = ("drafter_client.", "specpair.speculation.drafting.", "specpair.drafters.")


@pytest.mark.parametrize("lockstep", [False, True], ids=["overlapped", "lockstep"])
def test_a_text_leaves_no_cycles(verifier: Verifier, lockstep: bool) -> None:
    options = Options(max_tokens=60, temperature=0.8, seed=3, lockstep=lockstep, draft_n=6)
    with Pair(verifier.url, DraftModel(Path("1"), "scripted")) as pair:
        pair.generate("def f(x):", options).read()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            pair.generate("def f(x):", options).read()
            gc.collect()
            left = {f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not [name for name in sorted(left) if name.startswith(OURS)]
