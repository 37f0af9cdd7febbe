"""The fixtures of canitoolcall: what models wrote, and what a reader should make of it."""

import json

import pytest
from canitoolcall.fixtures import Fixture, load_fixtures
from canitoolcall.pytest_plugin import assert_conforms
from canitoolcall.results import ParsedToolCall, ParseResult
from hypothesis import given
from hypothesis import strategies as st

from gateway.openai_api.answer import THINK, AnswerForm, markers_of
from gateway.openai_api.tools.reader import Tools
from gateway.openai_api.tools.styles import Style
from tests.gateway.openai_api.tools.support import answered
from tests.paths import ROOT

# By a tag, or by the family.
STYLES = {
    "x-llama-pythonic": Style.PYTHONIC,
    "x-deepseek-v3": Style.DEEPSEEK_V3,
    "x-deepseek-v31": Style.DEEPSEEK_V31,
    "x-deepseek-v32": Style.DEEPSEEK_V32,
    "x-deepseek-v4": Style.DEEPSEEK_V4,
    "x-deepseek-v41": Style.DEEPSEEK_V41,
    "x-glm45": Style.GLM,
    "x-glm47": Style.GLM_COMPACT,
    "x-glm53": Style.GLM_COMPACT,
    "x-kimi-k2": Style.KIMI,
    "gpt-oss": Style.HARMONY,
    "qwen3-hermes": Style.HERMES,
    "qwen3-xml": Style.QWEN_XML,
    "llama": Style.LLAMA,
    "mistral": Style.MISTRAL,
    "gemma4": Style.GEMMA,
}
MARKERS = {
    "mistral": markers_of("[THINK]"),
    "gemma4": markers_of("<|channel>thought"),
    "gpt-oss": markers_of("<|channel|> analysis"),
}
ALL = load_fixtures()


def style_of_fixture(fixture: Fixture) -> Style | None:
    """The style in which its model writes calls; None: none that is read here."""
    return next((style for name, style in STYLES.items() if name in (*fixture.tags, fixture.family)), None)


FIXTURES = {each.id: each for each in ALL if style_of_fixture(each)}

CUT = "a call that the end cuts is content as it was written, and not dropped"
# Where we differ, and why.
DIFFERENT = {
    "llama/l4-truncated-missing-close-bracket": "the call before the one that is cut is whole, and stays",
    "deepseek/v32-truncated-second-parallel-call": CUT,
    "deepseek/v4-truncated-second-parallel-call": CUT,
    "deepseek/v41-truncated-second-parallel-call": CUT,
    "gemma4/truncated-second-parallel-call": CUT,
    "glm/glm47-missing-last-close-arg-value": "a value may hold the end of a call",
    "gpt-oss/llamacpp-builtin-python-recipient": "a call of an unknown tool is content",
    "qwen3-hermes/truncated-second-parallel-call": CUT,
    "qwen3-xml/llamacpp-q35-call-inside-think": "its call ends its thoughts; who reads thoughts decides about that",
}
# In a stream, arguments have been told when the end cuts the call. They stand; `CallEnded` says that it is not whole.
TOLD_BEFORE_THE_CUT = {
    "deepseek/v3-truncated-mid-arguments",
    "deepseek/v31-truncated-mid-arguments",
    "deepseek/v32-truncated-mid-arguments",
    "deepseek/v4-truncated-mid-arguments",
    "deepseek/v41-truncated-mid-arguments",
    "deepseek/vllm-v3-malformed-missing-brace",
    "gemma4/truncated-before-close",
    "gemma4/truncated-mid-string",
    "glm/glm45-truncated-after-arg-key",
    "glm/glm47-truncated-before-close-call",
    "glm/glm47-truncated-inside-arg-value",
    "gpt-oss/harmony-truncated-in-arguments",
    "kimi/k26-truncated-inside-arguments",
    "llama/l3-truncated-inside-parameters",
    "llama/l4-truncated-missing-close-bracket",
    "mistral/v13think-truncated-in-arguments",
    "qwen3-hermes/bug-sglang-30480-truncated-mid-arguments",
    "qwen3-hermes/truncated-mid-arguments-no-thinking",
    "qwen3-hermes/truncated-mid-arguments-thinking",
    "qwen3-hermes/vllm-invalid-json-missing-brace",
    "qwen3-xml/q38-truncated-in-parameter",
}


def tools_of(fixture: Fixture) -> Tools:
    """The tools that a fixture gives."""
    return {each["function"]["name"]: each["function"].get("parameters", {}) for each in fixture.tools}


def form_of(fixture: Fixture, *, whole: bool) -> AnswerForm:
    """How its text is read. Its prompt may have begun the thoughts."""
    markers = MARKERS.get(fixture.family) or THINK
    markers = THINK if fixture.raw_output.startswith(THINK.begin) else markers
    prompt, text = (fixture.generation_prompt or "").rstrip(), fixture.raw_output.lstrip()
    unsaid = fixture.thinking is True and not prompt and fixture.family in ("glm", "kimi", "deepseek")
    begun = prompt.endswith(markers.begin) or "x-think-no-open-tag" in fixture.tags or unsaid
    return AnswerForm(
        markers=markers,
        begun=begun and not text.startswith(markers.begin),
        style=style_of_fixture(fixture),
        tools=tools_of(fixture),
        whole=whole,
    )


def parsed(fixture: Fixture, *, whole: bool, step: int) -> tuple[ParseResult, list[bool | None]]:
    """What is read of a fixture in parts of `step` characters, and which calls are whole."""
    said = answered(form_of(fixture, whole=whole), fixture.raw_output, step)
    calls = tuple(ParsedToolCall(call.name, call.arguments) for call in said.calls)
    result = ParseResult(content=said.content or None, reasoning_content=said.thoughts or None, tool_calls=calls)
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


def test_the_table_in_the_documentation_is_that_of_the_fixtures() -> None:
    differ = {*DIFFERENT, *TOLD_BEFORE_THE_CUT}
    rows = []
    for style in (*Style, None):
        names = [each.id for each in ALL if style_of_fixture(each) is style]
        accepted = len(differ.intersection(names))
        passed = 0 if style is None else len(names) - accepted
        rows += [f"| {style or 'none: Kimi K3'} | {len(names)} | {passed} | {accepted} |"] if names else []
    text = (ROOT / "docs" / "openai.md").read_text(encoding="utf-8")
    assert [each for each in rows if each not in text] == []


SHORT = sorted(name for name, each in FIXTURES.items() if len(each.raw_output) < 400)
DAMAGES = st.tuples(st.integers(0, 400), st.integers(0, 5), st.sampled_from(["", *'{}[]()"\\,:<>|= \n']))


@given(st.sampled_from(SHORT), st.lists(DAMAGES, max_size=3), st.integers(1, 50), st.booleans())
def test_damaged_texts(name: str, damages: list[tuple[int, int, str]], step: int, whole: bool) -> None:
    form, text = form_of(FIXTURES[name], whole=whole), FIXTURES[name].raw_output
    for at, removed, added in damages:
        text = text[:at] + added + text[at + removed :]
    said = answered(form, text)
    assert said == answered(form, text, step)
    assert said == answered(form, text, 1)
    assert all(isinstance(json.loads(call.arguments), dict) for call in said.calls if call.whole)
