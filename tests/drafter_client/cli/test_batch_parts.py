"""Parts of a run over many prompts: the file of prompts, tasks in threads, totals."""

import io
import json
import threading
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from drafter_client.cli.batch import in_parallel, show_totals
from drafter_client.cli.prompts import FilePrompt, parse_prompts
from drafter_client.cli.results import Result
from drafter_client.errors import BadPromptFile
from drafter_client.options import Mode, Options
from tests.waiting import no_thread_left

DEFAULTS = Options(max_tokens=40, temperature=0.5, mode=Mode.TARGET)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
LINES = TEXTS.filter(lambda text: bool(text.strip()) and "\n" not in text and not text.startswith("\ufeff")).map(
    lambda text: text.rstrip("\r") or "x"
)


def _parse(data: bytes, name: str = "p.txt", **more: object) -> list[FilePrompt]:
    return parse_prompts(data, name, DEFAULTS, **more)  # type: ignore[arg-type]


@given(st.lists(LINES, min_size=1), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_each_line_is_a_prompt_unchanged(texts: list[str], end: str, ended: bool) -> None:
    data = (end.join(texts) + (end if ended else "")).encode()
    assert _parse(data) == [FilePrompt(at, text, DEFAULTS) for at, text in enumerate(texts)]


@given(st.lists(TEXTS, min_size=1), st.booleans())
def test_an_object_holds_any_text(texts: list[str], ascii_only: bool) -> None:
    data = "\n".join(json.dumps({"prompt": text}, ensure_ascii=ascii_only) for text in texts).encode()
    assert [prompt.text for prompt in _parse(data, "p.jsonl")] == texts


def test_a_byte_order_mark_is_no_text() -> None:
    assert [prompt.text for prompt in _parse(b"\xef\xbb\xbfa\nb")] == ["a", "b"]
    assert _parse(b'\xef\xbb\xbf{"prompt": "a"}', "p.jsonl")[0].text == "a"


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "p.txt is empty: write one prompt a line"),
        (b"\n", "p.txt is empty: write one prompt a line"),
        (b" \t\r\n\n", "p.txt is empty: write one prompt a line"),
        (b"a\n\ncaf\xe9\n", "p.txt, line 3: this is not UTF-8 text"),
    ],
)
def test_a_bad_text_file_is_refused_with_the_line(data: bytes, complaint: str) -> None:
    with pytest.raises(BadPromptFile) as raised:
        _parse(data)
    assert str(raised.value) == complaint


KEYS = (
    "prompt, id, system, messages, seed, temperature, top_k, top_p, min_p, presence_penalty, frequency_penalty, "
    "repetition_penalty, min_tokens, regex, grammar, grammar_after, max_tokens, logprobs, cache_salt, logit_bias, "
    "prediction, json_schema, choice, stop"
)

BOTH = "there are messages and a prompt"
ROLE = "messages.0.role: Input should be 'system', 'developer', 'user', 'assistant', 'tool' or 'function'"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "this is not JSON (Expecting property name enclosed in double quotes at column 2)"),
        ("[" * 100_000, "this is not JSON that can be read"),
        ('{"prompt": ' + "9" * 5000 + "}", "this is not JSON that can be read"),
        ('"a"', 'this is not an object: write {"prompt": "…"}'),
        ('{"id": "x"}', "there is no prompt"),
        ('{"prompt": null}', "there is no prompt"),
        ('{"prompt": ""}', "the prompt is empty: give at least one character to continue"),
        ('{"prompt": ["a"]}', 'prompt must be text, got ["a"]'),
        ('{"prompt": "\\ud800"}', "prompt holds half a character (a lone surrogate): this is not text"),
        ('{"prompt": "a", "prompt": "b"}', "a key is given twice"),
        ('{"prompt": "a", "max_token": 3}', f"'max_token' is no key of a prompt, which are {KEYS}"),
        ('{"prompt": "a", "max_tokens": "3"}', 'max_tokens must be a whole number, got "3"'),
        ('{"prompt": "a", "max_tokens": true}', "max_tokens must be a whole number, got true"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens must be at least 1, got 0"),
        ('{"prompt": "a", "temperature": "warm"}', 'temperature must be a number, got "warm"'),
        ('{"prompt": "a", "temperature": NaN}', "temperature must be in [0, 100], got nan"),
        ('{"prompt": "a", "top_k": 1.5}', "top_k must be a whole number, got 1.5"),
        ('{"prompt": "a", "top_p": 0}', "top_p must be in (0, 1], got 0"),
        ('{"prompt": "a", "min_p": 2}', "min_p must be in [0, 1], got 2"),
        ('{"prompt": "a", "logit_bias": [1]}', "logit_bias must be an object of token ids and numbers, got [1]"),
        ('{"prompt": "a", "logit_bias": {"x": 1}}', "logit_bias names 'x', which is no token id"),
        ('{"prompt": "a", "logit_bias": {"1": "x"}}', "logit_bias must map token ids to numbers, got 1: 'x'"),
        ('{"prompt": "a", "logit_bias": {"1": 101}}', "logit_bias of token 1 must be in [-100, 100], got 101"),
        ('{"prompt": "a", "seed": -1}', "seed must be in [0, 2**53), got -1"),
        ('{"prompt": "a", "system": "b"}', "system is a message of a chat: add --chat"),
        ('{"prompt": "a", "id": "x"}', "the id 'x' is that of line 1, too"),
        ('{"prompt": "a", "stop": 5}', "stop must be text or a list of texts, got 5"),
        ('{"prompt": "a", "stop": ["b", ""]}', "stop holds an empty string: give each at least one character"),
        ('{"prompt": "a", "stop": ["b", 1]}', "stop must be strings, got ['b', 1]"),
        ('{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}', f"{BOTH}: leave one out"),
        ('{"messages": []}', "messages is empty: give at least one message"),
        ('{"messages": "a"}', 'messages must be a list of messages, got "a"'),
        ('{"messages": [{"role": "user"}]}', "messages.0: content: a string or parts of text, missing here"),
        ('{"messages": [{"role": "boss", "content": "a"}]}', ROLE),
    ],
    ids=range(34),
)
def test_a_bad_object_is_refused_with_the_line(line: str, complaint: str) -> None:
    with pytest.raises(BadPromptFile) as raised:
        _parse(b'{"prompt": "fine", "id": "x"}\n' + line.encode() + b"\n", "p.jsonl")
    assert str(raised.value) == f"p.jsonl, line 2: {complaint}"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_blank_lines_are_skipped_and_not_counted(end: bytes) -> None:
    lines = [b"", b"a", b" \t", b"", b" b", b""]
    assert [(prompt.index, prompt.text) for prompt in _parse(end.join(lines))] == [(0, "a"), (1, " b")]
    objects = [b"", b'{"prompt": "a"}', b" ", b'{"prompt": "b"}', b""]
    assert [prompt.label for prompt in _parse(end.join(objects), "p.jsonl")] == ["prompt 1", "prompt 2"]


def test_an_object_may_have_messages_in_place_of_a_prompt() -> None:
    said: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]},
    ]
    line = json.dumps({"messages": said, "system": "s", "id": 4}).encode()
    (prompt,) = _parse(line, "p.jsonl")
    assert prompt.chat and prompt.system == "s" and prompt.id == 4
    assert prompt.said == prompt.messages == [{**said[0], "role": "system"}, *said[1:]]
    (plain,) = _parse(b"a")
    assert plain.said == "a" and not plain.chat


def test_an_id_is_shown_without_control_characters() -> None:
    (prompt,) = _parse(b'{"prompt": "a", "id": "\\u001b[31m\\nx"}', "p.jsonl")
    assert prompt.label == r"prompt 1 (\x1b[31m\nx)"
    (long,) = _parse(b'{"prompt": "a", "id": "' + b"y" * 4000 + b'"}', "p.jsonl")
    assert len(long.label) < 80


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> object:
    with no_thread_left():
        yield


def test_closing_stops_the_threads() -> None:
    stop = threading.Event()

    def work(task: int) -> int:
        if task:
            assert stop.wait(20)
        return task

    with closing(in_parallel(range(50), work, 2, stop)) as results:
        assert next(results) == 0
    assert stop.is_set()


def _text(index: int, tokens: int, total_ms: float, **more: Any) -> Result:
    line = {"model": "big-7b", "draft_model": "small-1b", "id": None, "generated_tokens": tokens, "total_ms": total_ms}
    line |= {"rounds": 10, "drafted": 40, "accepted": 30, "ttft_ms": 20.0, "bytes_sent": 1024, "bytes_received": 2048}
    asked = {"strategy": "coupled", "threshold": None, "mode": "remote"}
    return Result(index, line | {"text": "…", "asked": asked} | more)


FAILED = Result(3, {"id": None, "error": {"message": "too long"}})
FOUND = [_text(0, 100, 3000.0, outage_ms=2000.0, resumed=[4])]
NEW = [_text(2, 100, 2000.0, ttft_ms=30.0), _text(1, 100, 500.0, id="fib", ttft_ms=40.0), FAILED]


def _shown(prompts: int, found: list[Result], new: list[Result], seconds: float, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show_totals(prompts, found, new, seconds, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def _rows(shown: str) -> list[str]:
    return [" ".join(line.strip("│╭─╮ ").split()) for line in shown.splitlines()]


def test_the_totals_are_over_earlier_runs_too_without_their_outages() -> None:
    shown = _shown(5, FOUND, NEW, 4.0)
    assert _rows(shown)[:-1] == [
        "small-1b drafts for big-7b",
        "prompts 5 all together 50.00 tokens/s",
        "finished 3 a text, median 100.00 tokens/s",
        "errors 1 TTFT, median 30 ms",
        "tokens 300 time 4.0 s",
        "acceptance rate 75.0% mean acceptance length 4.00",
        "sent 3.0 KiB received 6.0 KiB",
        "waited 2.0 s for the verifier, which is no part of the speed of a text",
        "1 text was resumed after the verifier went away",
    ]
    assert all(len(line) <= 60 for line in _shown(5, FOUND, NEW, 4.0, 60).splitlines())


def test_totals_without_texts_or_without_drafts_are_dashes() -> None:
    assert _rows(_shown(2, [], [FAILED], 0.0))[:6] == [
        "no text",
        "prompts 2 all together -",
        "finished 0 a text, median -",
        "errors 1 TTFT, median -",
        "tokens 0 time 0.0 s",
        "acceptance rate - mean acceptance length -",
    ]
    shown = _rows(_shown(1, [], [_text(0, 10, 100.0, draft_model="", rounds=0, drafted=0, accepted=0)], 0.2))
    assert shown[0] == "big-7b" and "acceptance rate - mean acceptance length -" in shown


@pytest.mark.parametrize(
    ("strategy", "threshold", "mode", "row"),
    [
        ("threshold", 0.25, "remote", "strategy threshold 0.25 the text is lossy"),
        ("threshold", 0.25, "target", "strategy threshold 0.25 the text is target's sample"),
        ("probabilistic", None, "remote", "strategy probabilistic the text is target's sample"),
        ("coupled", None, "remote", None),
    ],
)
def test_another_strategy_is_named_with_its_exactness(
    strategy: str, threshold: float | None, mode: str, row: str | None
) -> None:
    asked = {"strategy": strategy, "threshold": threshold, "mode": mode}
    shown = _shown(1, [], [_text(0, 10, 100.0, asked=asked)], 0.2)
    assert [each for each in _rows(shown) if each.startswith("strategy")] == ([] if row is None else [row])
