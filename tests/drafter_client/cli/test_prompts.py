"""Prompt files: how they are read, and the errors of a bad one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.cli.prompts import FilePrompt, parse_prompts
from drafter_client.errors import BadPromptFile
from drafter_client.options import Mode, Options

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


def test_the_settings_of_an_object_override_the_flags() -> None:
    settings = {"max_tokens": 3, "temperature": 1, "top_k": 5, "top_p": 0.5, "seed": 9}
    lines = [{"prompt": "a", "id": "x", "system": "s", **settings}, {"prompt": "b", "id": 7, "max_tokens": None}]
    first, second = _parse("\n".join(map(json.dumps, lines)).encode(), "p.jsonl", chat=True, system="t")
    options = Options(max_tokens=3, temperature=1, top_k=5, top_p=0.5, seed=9, mode=Mode.TARGET)
    assert first == FilePrompt(0, "a", options, "x", True, "s") and first.label == "prompt 1 (x)"
    assert second == FilePrompt(1, "b", DEFAULTS, 7, True, "t") and second.label == "prompt 2 (7)"


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
