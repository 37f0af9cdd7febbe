"""Dialogues: what was said, asked again, saved and loaded."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.chat.dialogue import BadChat, Dialogue

TALK = Dialogue().asked("a?").answered("A").asked("b?").answered("B")


def _contents(dialogue: Dialogue) -> list[str]:
    return [each["content"] for each in dialogue.messages()]


def test_an_unanswered_question_is_replaced_by_the_next() -> None:
    asked = TALK.asked("c?")
    assert asked.unanswered and not TALK.unanswered
    assert _contents(asked.asked("d?")) == ["a?", "A", "b?", "B", "d?"]
    assert _contents(TALK) == ["a?", "A", "b?", "B"], "values do not change"


def test_the_last_question_is_asked_again_without_its_answer() -> None:
    assert _contents(TALK.asked_again()) == ["a?", "A", "b?"] == _contents(TALK.asked_again().asked_again())
    with pytest.raises(BadChat, match="nothing was asked yet"):
        Dialogue("be brief").asked_again()


def test_the_system_message_comes_first() -> None:
    assert Dialogue("be brief").asked("a?").messages() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "a?"},
    ]


@given(said=st.lists(st.text(), max_size=5), system=st.none() | st.text())
def test_what_is_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, said: list[str], system: str | None) -> None:
    dialogue = Dialogue(system)
    for at, text in enumerate(said):
        dialogue = dialogue.answered(text) if at % 2 else dialogue.asked(text)
    path = tmp_path_factory.getbasetemp() / "talk.json"
    dialogue.save(path)
    assert Dialogue.load(path) == dialogue
    path.write_text(json.dumps(dialogue.messages()))  # the list alone
    assert Dialogue.load(path) == dialogue


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"x": []}', "holds no messages"),
        ("5", "holds no messages"),
        ('["a"]', "message 1 is no object"),
        ('[{"role": "tool", "content": "x"}]', 'message 1: the role must be system, user or assistant, got "tool"'),
        ('[{"role": "user", "content": ["x"]}]', "message 1: the content must be text"),
        ('[{"role": "user", "content": "\\ud800"}]', "message 1: the content must be text"),
        ('[{"role": "assistant", "content": "x"}]', "message 1 is of the assistant, there must be one of the user"),
        (
            '[{"role": "developer", "content": ""}, {"role": "user", "content": ""}, {"role": "user", "content": ""}]',
            "message 3 is of the user, there must be one of the assistant",
        ),
        (b"\xff", "is not UTF-8 text"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong(tmp_path: Path, content: Any, error: str) -> None:
    path = tmp_path / "talk.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadChat) as raised:
        Dialogue.load(path)
    assert error in str(raised.value) and str(path) in str(raised.value)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "talk.json"
    with pytest.raises(BadChat, match=r"talk\.json cannot be written: No such file"):
        TALK.save(path)
