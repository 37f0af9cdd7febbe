"""`drafter chat` without a terminal: one turn a line, against a real verifier whose model repeats what is said."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from tests.drafter_client.cli.command_line import TOY, Command, Ran
from tests.drafter_client.support import serving
from tests.gateway.openai_api.parrot import Parrot, parrot_alone

Chatting = Callable[..., Ran]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with parrot_alone(Parrot()) as url:
        yield url


@pytest.fixture
def chat(drafter: Command, url: str) -> Chatting:
    def chat(*lines: str, flags: tuple[str, ...] = ()) -> Ran:
        stdin = "".join(line + "\n" for line in lines).encode()
        return drafter("chat", "--verifier", url, *TOY, "--mode", "remote", *flags, stdin=stdin)

    return chat


def test_a_line_is_a_turn_and_the_answers_alone_are_standard_output(chat: Chatting) -> None:
    ran = chat("\ufeffone **two**", "", " /three", "/quit", "four")
    assert (ran.status, ran.out, ran.err) == (0, "one **two**\n\n/three\n\n", "")


def test_messages_are_saved_loaded_and_go_on(chat: Chatting, tmp_path: Path) -> None:
    file = tmp_path / "a chat.json"
    ran = chat("/system be brief", "one", f"/save {file}", "/new", "two", "/system", flags=("--system", "x"))
    assert (ran.status, ran.out) == (0, "one\n\ntwo\n\n")
    said = [("system", "be brief"), ("user", "one"), ("assistant", "one")]
    assert json.loads(file.read_text())["messages"] == [{"role": role, "content": text} for role, text in said]
    assert ran.err.splitlines() == [
        "drafter: system message: be brief",
        f"drafter: 3 messages in {file}",
        "drafter: what was said is forgotten, the system message stays",
        "drafter: system message: be brief",
    ]
    ran = chat(f"/load {file}", "/system off", "two", "/retry", f"/save {file}")
    assert ran.out == "two\n\ntwo\n\n" and "at temperature 0 every seed gives the same answer" in ran.err
    said = [*said[1:], ("user", "two"), ("assistant", "two")]
    assert json.loads(file.read_text())["messages"] == [{"role": role, "content": text} for role, text in said]


def test_thoughts_are_kept_apart_from_the_answer(chat: Chatting, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    asked = "<think>why</think>yes"
    said = [{"role": "user", "content": asked}, {"role": "assistant", "content": "yes", "reasoning_content": "why"}]
    assert chat(asked, f"/save {file}").out == "yes\n\n"
    assert json.loads(file.read_text())["messages"] == said
    ran = chat(f"/load {file}", "<think>endless", f"/save {file}")
    assert (ran.status, ran.out) == (0, "")
    said.append({"role": "user", "content": "<think>endless"})
    assert json.loads(file.read_text())["messages"] == said, "thoughts alone are no answer"


def test_the_first_error_ends_a_chat_without_a_terminal(chat: Chatting, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    for line, error in [
        ("/retry", "no question was asked yet"),
        ("/mode fused", "/mode fused: this pair does not offer it now, choose one of auto, remote, target"),
        ("/mode quick", "/mode quick: there is no such mode, choose one of auto, remote, target"),
        (f"/save {other}", f"{other} is not JSON"),
        (f"/load {other}", f"{other} is not JSON"),
        ("/sav", "no command /sav (for text, put a space before it); did you mean /save?"),
    ]:
        ran = chat(line, "never")
        assert (ran.status, ran.out) == (1, "") and error in ran.err
    assert other.read_text() == "mine"


def test_what_the_pair_runs_its_mode_and_its_statistics_are_shown(chat: Chatting) -> None:
    ran = chat("/stats", "/mode target", "one", "/model", "/stats", "/help")
    assert ran.out == "one\n\n"
    assert "drafter: nothing was answered yet\ndrafter: mode target, of auto, remote, target\n" in ran.err
    assert "drafter: the verifier runs scripted-2 on scripted (context: 4096 tokens)" in ran.err
    assert "drafter: scripted-1 drafts on this machine" in ran.err and "--draft-model here" in ran.err
    assert "scripted-2 alone" in ran.err and "what the text waited for" in ran.err
    assert "drafter: /retry          ask the last question again" in ran.err


def test_the_prompt_begins_like_the_last_one_and_is_not_read_again(chat: Chatting) -> None:
    ran = chat("a long first question " * 8, "b", "/stats")
    said = re.search(r"prompt +(\d+) tokens.*\n.*prompt cached +(\d+) tokens", ran.err)
    assert said is not None and int(said[1]) - int(said[2]) < 32, ran.err


def test_a_question_is_asked_again_with_another_seed(drafter: Command) -> None:
    target = ScriptedBackend(Script(seed=1))
    target.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}assistant:"
    with serving(target) as verifier:
        flags = ["chat", "--verifier", verifier.url, *TOY, "--max-tokens", "12", "--temperature", "1", "--seed"]
        first, again = (drafter(*flags, seed, stdin=b"x\n").out for seed in ("5", "6"))
        assert first != again
        assert drafter(*flags, "5", stdin=b"x\n/retry\n").out == first + again


def test_an_answer_that_is_cut_says_so(chat: Chatting) -> None:
    ran = chat("one two three", flags=("--max-tokens", "4"))
    assert (ran.out, ran.err) == ("one \n\n", "drafter: cut after 4 tokens (--max-tokens)\n")


def test_flags_that_do_not_go_together_are_refused(chat: Chatting) -> None:
    assert "--threshold" in chat(flags=("--strategy", "threshold")).err
    ran = chat(flags=("--prompt", "x"))
    assert ran.status == 2 and "no flag --prompt" in ran.err


def test_a_chat_longer_than_the_context_says_how_to_go_on(drafter: Command) -> None:
    with parrot_alone(Parrot(context=64)) as url:
        ran = drafter("chat", "--verifier", url, *TOY, stdin=b"one\n" + b"x" * 80 + b"\n")
    assert (ran.status, ran.out) == (1, "one\n\n") and "the context holds 64" in ran.err


def test_a_model_without_a_chat_template_is_refused(drafter: Command) -> None:
    with serving() as verifier:
        ran = drafter("chat", "--verifier", verifier.url, *TOY, stdin=b"x\n")
    assert (ran.status, ran.out) == (1, "") and "no chat template: serve an instruct model" in ran.err
    assert "verifier -hf Qwen/" in ran.err  # what it can be told at once, and fetches


def test_input_that_is_no_text_is_refused(drafter: Command, url: str) -> None:
    ran = drafter("chat", "--verifier", url, *TOY, stdin=b"\xff\n")
    assert (ran.status, ran.out) == (1, "") and "standard input is not UTF-8 text" in ran.err
