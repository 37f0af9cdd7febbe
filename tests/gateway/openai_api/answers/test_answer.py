"""Thoughts before an answer: the markers that templates show, and what is told however the text is divided."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.openai_api.answer import (
    THINK,
    AnswerForm,
    AnswerReader,
    Markers,
    Thought,
    ThoughtReader,
    markers_of,
)
from gateway.openai_api.tools.notation import CallBegan, Content
from gateway.openai_api.tools.styles import Style

HARMONY = markers_of("{{ '<|channel|>' }} analysis") or THINK
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def divided(markers: Markers, text: str, cuts: list[int], *, begun: bool) -> tuple[str, str, int | None]:
    """The thoughts, what follows them, and how many characters the thoughts have with their markers."""
    reader, thoughts, answer = ThoughtReader(markers, begun=begun), "", ""
    for begin, end in pairwise([0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]):
        parts = reader.feed(text[begin:end])
        thoughts, answer = thoughts + parts[0], answer + parts[1]
    parts = reader.finish()
    return thoughts + parts[0], answer + parts[1], reader.end


@pytest.mark.parametrize(
    ("text", "begun", "expected"),
    [
        ("<think>\nWhy?\n</think>\n\nSo.", False, ("Why?", "So.")),
        ("\n<think>a  b</think> So. ", False, ("a  b", "So. ")),
        ("Why?\n</think>\n\nSo.", True, ("Why?", "So.")),
        ("<think>\nWhy?\n</think>\n\nSo.", True, ("Why?", "So.")),
        ("</think>So.", True, ("", "So.")),
        ("<think></think>So.", False, ("", "So.")),
        ("So.", False, ("", "So.")),
        ("\n So. <think>x</think>", False, ("", "\n So. <think>x</think>")),
        ("<thin", False, ("", "<thin")),
        ("<thinking>", False, ("", "<thinking>")),
        ("<think>never </thin", False, ("never </thin", "")),
        ("never ended \n", True, ("never ended", "")),
        ("", True, ("", "")),
        ("  ", False, ("", "  ")),
        ("Why?</think>", True, ("Why?", "")),
    ],
)
def test_thoughts_are_divided_from_the_answer(text: str, begun: bool, expected: tuple[str, str]) -> None:
    whole = divided(THINK, text, [], begun=begun)
    assert whole[:2] == expected
    assert divided(THINK, text, [*range(len(text))], begun=begun) == whole


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "<|channel|>analysis<|message|>Why?<|end|><|start|>assistant<|channel|>final<|message|>So.",
            ("Why?", "So."),
        ),
        ("<|channel|>final<|message|>So.", ("", "So.")),
        ("<|channel|>analysis<|message|>Why?<|end|><|start|>assistant", ("Why?", "")),
        ("So.", ("", "So.")),
    ],
)
def test_channels(text: str, expected: tuple[str, str]) -> None:
    assert divided(HARMONY, text, [], begun=False)[:2] == expected
    assert divided(HARMONY, text, [*range(len(text))], begun=False)[:2] == expected


PIECES = st.sampled_from(["<think>", "</think>", "<think", "</", "k>", "a", " ", "\n", "<"])


@given(st.lists(PIECES).map("".join), st.booleans(), st.lists(st.integers(0, 60), max_size=6))
def test_the_division_of_the_text_does_not_matter(text: str, begun: bool, cuts: list[int]) -> None:
    whole = divided(THINK, text, [], begun=begun)
    assert divided(THINK, text, cuts, begun=begun) == whole
    thoughts, answer, end = whole
    assert end is not None and text[end:].endswith(answer) and thoughts == thoughts.strip() and thoughts in text[:end]


@pytest.mark.parametrize(
    ("template", "begin"),
    [
        ("{{ content.split('</think>')[-1] }}", "<think>"),
        ("[THINK]{{ thoughts }}[/THINK]", "[THINK]"),
        ("<|channel>thought\n<channel|>", "<|channel>thought"),
        ("<seed:think>", "<seed:think>"),
        ("<|START_THINKING|>", "<|START_THINKING|>"),
        ("<|start|>assistant<|channel|>analysis<|message|>", "<|channel|>analysis<|message|>"),
    ],
)
def test_the_template_says_the_markers(template: str, begin: str) -> None:
    assert markers_of(template).begin == begin  # type: ignore[union-attr]


def test_a_template_without_thoughts() -> None:
    assert markers_of(None) is None and markers_of("{{ messages }}") is None


@given(st.lists(st.integers(0, 90), max_size=5))
def test_calls_are_read_behind_the_thoughts_alone(cuts: list[int]) -> None:
    text = f"<think>{CALL}</think>\n{CALL}"
    for apart in (True, False):
        answer = AnswerReader(AnswerForm(THINK, apart=apart, style=Style.HERMES, tools={"f": {}}))
        events = []
        for begin, end in pairwise([0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]):
            events += answer.feed(text[begin:end])
        events += answer.finish()
        thoughts = "".join(event.text for event in events if isinstance(event, Thought))
        content = "".join(event.text for event in events if isinstance(event, Content))
        assert sum(isinstance(event, CallBegan) for event in events) == 1 and answer.reason("stop") == "tool_calls"
        assert (thoughts, content.strip()) == ((CALL, "") if apart else ("", f"<think>{CALL}</think>"))
