"""The fixtures of canitoolcall: what models wrote, and what a reader should make of it."""

import json

import pytest
from canitoolcall.fixtures import Fixture, load_fixtures
from canitoolcall.pytest_plugin import assert_conforms
from canitoolcall.results import ParsedToolCall, ParseResult
from hypothesis import given
from hypothesis import strategies as st

from gateway.openai_api.tools.reader import Tools
from gateway.openai_api.tools.styles import Style
from tests.gateway.openai_api.tools.support import read

STYLES = {
    "qwen3-hermes": Style.HERMES,
    "qwen3-xml": Style.QWEN_XML,
    "llama": Style.LLAMA,
    "mistral": Style.MISTRAL,
    "gemma4": Style.GEMMA,
}
FIXTURES = {each.id: each for each in load_fixtures(families=list(STYLES))}
THOUGHTS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<|channel>thought\n", "<channel|>"))

CUT = "a call that the end cuts is content as it was written, and not dropped"
# Where we differ, and why.
DIFFERENT = {
    "llama/l4-truncated-missing-close-bracket": "the call before the one that is cut is whole, and stays",
    "gemma4/truncated-second-parallel-call": CUT,
    "qwen3-hermes/truncated-second-parallel-call": CUT,
    "qwen3-xml/llamacpp-q35-call-inside-think": "its call ends its thoughts; who reads thoughts decides about that",
}
# In a stream, arguments have been told when the end cuts the call. They stand; `CallEnded` says that it is not whole.
TOLD_BEFORE_THE_CUT = {
    "gemma4/truncated-before-close",
    "gemma4/truncated-mid-string",
    "llama/l3-truncated-inside-parameters",
    "llama/l4-truncated-missing-close-bracket",
    "mistral/v13think-truncated-in-arguments",
    "qwen3-hermes/bug-sglang-30480-truncated-mid-arguments",
    "qwen3-hermes/truncated-mid-arguments-no-thinking",
    "qwen3-hermes/truncated-mid-arguments-thinking",
    "qwen3-hermes/vllm-invalid-json-missing-brace",
    "qwen3-xml/q38-truncated-in-parameter",
}


def split(fixture: Fixture) -> tuple[str | None, str]:
    """The thoughts before a text, and the text. The prompt may have begun them."""
    text, prompt = fixture.raw_output, (fixture.generation_prompt or "").rstrip()
    for begin, end in THOUGHTS:
        if text.startswith(begin) or prompt.endswith(begin):
            thoughts, _, text = text.removeprefix(begin).partition(end)
            return thoughts.strip("\n") or None, text
    return None, text


def tools_of(fixture: Fixture) -> Tools:
    """The tools that a fixture gives."""
    return {each["function"]["name"]: each["function"].get("parameters", {}) for each in fixture.tools}


def style_of_fixture(fixture: Fixture) -> Style:
    """The style in which its model writes calls."""
    return Style.PYTHONIC if "x-llama-pythonic" in fixture.tags else STYLES[fixture.family]


def parsed(fixture: Fixture, *, whole: bool, step: int) -> tuple[ParseResult, list[bool | None]]:
    """What is read of a fixture in parts of `step` characters, and which calls are whole."""
    thoughts, text = split(fixture)
    tools = tools_of(fixture)
    cuts = range(step, max(len(text), step), step)
    said = read(style_of_fixture(fixture), tools, text, cuts, whole=whole)
    calls = tuple(ParsedToolCall(call.name, call.arguments) for call in said.calls)
    result = ParseResult(content=said.content or None, reasoning_content=thoughts, tool_calls=calls)
    return result, [call.whole for call in said.calls]


def conforms(fixture: Fixture, result: ParseResult) -> bool:
    """Whether a result is what the fixture expects. Whitespace around content does not count."""
    try:
        assert_conforms(fixture, result, soft=True)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", FIXTURES)
def test_whole_calls(name: str) -> None:
    result, whole = parsed(FIXTURES[name], whole=True, step=10**6)
    assert all(whole)
    if name in DIFFERENT:
        assert not conforms(FIXTURES[name], result), "it is as expected: take it off the list"
    else:
        assert_conforms(FIXTURES[name], result, soft=True)


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("step", [1, 7])
def test_calls_as_they_grow(name: str, step: int) -> None:
    result, whole = parsed(FIXTURES[name], whole=False, step=step)
    if name in TOLD_BEFORE_THE_CUT:
        assert whole[-1] is False
    elif name in DIFFERENT:
        assert not conforms(FIXTURES[name], result)
    else:
        assert all(whole)
        assert_conforms(FIXTURES[name], result, soft=True)


SHORT = sorted(name for name, each in FIXTURES.items() if len(each.raw_output) < 400)
DAMAGES = st.tuples(st.integers(0, 400), st.integers(0, 5), st.sampled_from(["", *'{}[]()"\\,:<>|= \n']))


@given(st.sampled_from(SHORT), st.lists(DAMAGES, max_size=3), st.lists(st.integers(0, 400), max_size=4), st.booleans())
def test_damaged_texts(name: str, damages: list[tuple[int, int, str]], cuts: list[int], whole: bool) -> None:
    fixture = FIXTURES[name]
    style, tools, (_, text) = style_of_fixture(fixture), tools_of(fixture), split(fixture)
    for at, removed, added in damages:
        text = text[:at] + added + text[at + removed :]
    said = read(style, tools, text, whole=whole)
    assert said == read(style, tools, text, cuts, whole=whole)
    assert said == read(style, tools, text, range(1, len(text)), whole=whole)
    assert all(isinstance(json.loads(call.arguments), dict) for call in said.calls if call.whole)
