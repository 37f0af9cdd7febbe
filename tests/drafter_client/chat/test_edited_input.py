"""What keys do at the prompt."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from drafter_client.chat.turn_input import EditedInput, history_in


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as keys:
        yield keys


def _input(keys: PipeInput, history: Path | None = None) -> EditedInput:
    kept = InMemoryHistory() if history is None else history_in(history)
    return EditedInput(kept, lambda: ["auto", "target"], input=keys, output=DummyOutput())


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("one\r", "one"),
        ("one\x1b\rtwo\r", "one\ntwo"),
        ("one\\\rtwo\r", "one\ntwo"),
        ("\x1b[200~one\ntwo\x1b[201~\r", "one\ntwo"),
        ("one\x03two\r", "two"),
        ("\x03", None),
        ("\x04", None),
    ],
    ids=["enter", "alt-enter", "backslash", "paste", "ctrl-c", "ctrl-c at an empty prompt", "ctrl-d"],
)
def test_keys(keys: PipeInput, typed: str, read: str | None) -> None:
    keys.send_text(typed)
    assert _input(keys).read() == read


def test_the_history_is_kept_between_runs_for_the_user_alone(keys: PipeInput, tmp_path: Path) -> None:
    file = tmp_path / "new" / "chat_history"
    keys.send_text("one\x1b\rtwo\r")
    _input(keys, file).read()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = _input(keys, file)
    keys.send_text("\x1b[A\r")  # the arrow up
    assert again.read() == "one\ntwo"
