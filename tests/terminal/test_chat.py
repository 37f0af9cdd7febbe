"""`drafter chat` in a terminal: turns, Ctrl-C, another size, a verifier that goes away, a terminal without a cursor."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.openai_api.parrot import parrot_alone
from tests.terminal.screen import chatting
from tests.terminal.slow_verifier import SlowParrot, process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pseudo-terminals and /proc as on Linux")
LONG = " ".join(f"w{number}" for number in range(80))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with parrot_alone(SlowParrot()) as url:
        yield url


def test_turns_commands_and_markdown(url: str, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    with chatting(url) as talk:
        talk.say("a **bold** word\x1b\r- item")
        talk.say("/mdoe")
        talk.say(f"/save {file}")
        talk.say("/new")
        talk.say(f"/load {file}")
        talk.say("again")
        talk.say(f"/save {file}")
        lines = talk.leave()
        assert "Traceback" not in talk.terminal.text
    assert "scripted-2  (/help lists the commands, Ctrl-D leaves)" in lines
    at = lines.index("a bold word")
    assert lines[at - 2 : at + 4] == ["> a **bold** word", "  - item", "a bold word", "", " • item", ""]
    assert any("did you mean /mode?" in line for line in lines)
    assert [each["content"] for each in json.loads(file.read_text())["messages"]] == [
        *["a **bold** word\n- item"] * 2,
        *["again"] * 2,
    ]


def test_ctrl_c_ends_an_answer_and_what_was_written_counts_as_said(url: str, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    with chatting(url) as talk:
        talk.terminal.type(LONG + "\r")
        talk.terminal.wait_for(r"w79\s+w0 w1 w2 ")
        talk.terminal.type("\x03")
        talk.wait_for_prompt()
        talk.say(f"/save {file}")
        talk.say("short")
        assert re.search(r"> short\s+short\s", talk.terminal.text), "the next turn is answered"
        talk.terminal.type("\x03")
        assert talk.terminal.wait() == 0, talk.terminal.text
        assert "interrupted" in talk.terminal.text and "Traceback" not in talk.terminal.text
    question, answer = json.loads(file.read_text())["messages"]
    assert question["content"] == LONG and len(answer["content"]) < len(LONG) and LONG.startswith(answer["content"])
    assert "w2" in answer["content"]


def test_another_size_in_the_middle_breaks_nothing(url: str) -> None:
    with chatting(url) as talk:
        talk.terminal.type(LONG + "\r")
        talk.terminal.wait_for(r"w79\s+w0 w1 w2 ")
        talk.terminal.resize(60)
        talk.wait_for_prompt()
        written = talk.terminal.text.rpartition("w0 w1 w2 ")[2]
        assert re.findall(r"w\d+", written)[-1] == "w79"
        talk.terminal.resize(80)
        talk.terminal.type("short\r")
        # Not any prompt: that of before may be drawn again, with the new size.
        talk.terminal.wait_for(r"> short\s+(short\s+)+>\x08")
        assert "short" in talk.leave()


def test_a_dumb_terminal_gets_plain_lines(url: str) -> None:
    with chatting(url, "--sources", TERM="dumb") as talk:
        talk.terminal.type("one *two*\\\r")
        talk.terminal.wait_for("… ")
        talk.say("three")
        talk.say("/mode auto")
        lines = talk.leave()
        assert "\x1b" not in talk.terminal.raw
    assert "one *two*" in lines and "three" in lines and "mode auto, of auto, target" in lines


@pytest.mark.slow
def test_sources_colour_the_tokens(url: str) -> None:
    with chatting(url, "--sources") as talk:
        talk.say("one *two*")
        lines = talk.leave()
    assert "\x1b[36mo" in talk.terminal.raw and "one *two*" in lines
    assert any(line.startswith("■ accepted") for line in lines)


def test_control_characters_of_a_model_do_not_reach_the_terminal(url: str) -> None:
    with chatting(url) as talk:
        talk.say("aESC[2Jb")
        lines = talk.leave()
    assert "a\\x1b[2Jb" in lines


@pytest.mark.slow
def test_sigterm_ends_the_chat_in_the_middle_of_an_answer(url: str) -> None:
    with chatting(url) as talk:
        talk.terminal.type(LONG + "\r")
        talk.terminal.wait_for(r"w79\s+w0 w1 w2 ")
        talk.terminal.process.terminate()
        assert talk.terminal.wait() == 130
        assert "Traceback" not in talk.terminal.text


@pytest.mark.slow
def test_a_verifier_killed_in_the_middle_is_waited_for_and_ctrl_c_gives_up() -> None:
    with process() as verifier, chatting(verifier.url) as talk:
        talk.terminal.type(LONG + "\r")
        talk.terminal.wait_for(r"w79\s+w0 w1 w2 ")
        verifier.kill()
        talk.terminal.wait_for_raw("waiting for the verifier")
        verifier.start()
        talk.wait_for_prompt()
        assert re.search(
            r"w0 w1 .*w79\s+the verifier went away, and the text was taken up again", talk.terminal.text, re.S
        )
        verifier.kill()
        talk.terminal.type("lost\r")
        talk.terminal.wait_for_raw("waiting for the verifier(?s:.*)waiting for the verifier")
        talk.terminal.type("\x03")
        talk.wait_for_prompt()
        verifier.start()
        talk.say("/retry")
        assert "lost" in talk.leave()
