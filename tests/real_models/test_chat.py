"""`drafter chat` with the real pair in a terminal: twenty turns, with Ctrl-C, a killed verifier and another size in the
middle of answers. Each answer that was not ended is the one that the verifier alone gives."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from scripts import real_models
from specpair.child_processes import serving
from tests.terminal.screen import chatting

pytestmark = pytest.mark.engine("real")

LENGTH = 48  # tokens of an answer at most
LONG = "Count from one to one hundred in words, separated by commas."
QUESTIONS = [
    *("What does yield do in Python?", "Show it in three lines.", "And in a class?", "Name two uses.", LONG),
    *("Go on.", "What is a list comprehension?", LONG, "Show one.", "With a condition.", "Nested?", LONG),
    *("Is it fast?", "What is a set?", "Make one.", "Are they ordered?", "What is a dict?", "Make one of squares."),
    *("Thanks. What did I ask first?", "Say goodbye."),
]
INTERRUPTED, KILLED, RESIZED = (at for at, question in enumerate(QUESTIONS) if question is LONG)


def test_twenty_turns(target: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    file, draft = tmp_path / "chat.json", str(folder / real_models.DRAFT.name)
    with ExitStack() as stack:
        verifier = stack.enter_context(serving.verifier(**target))
        flags = ("--mode", "auto", "--draft-model", draft, "--threads", "1", "--max-tokens", str(LENGTH))
        with chatting(verifier.url, *flags) as talk:
            for at, question in enumerate(QUESTIONS):
                if at not in (INTERRUPTED, KILLED, RESIZED):
                    talk.say(question)
                    continue
                talk.terminal.type(question + "\r")
                talk.terminal.wait_for_raw("(?i)two")
                if at == INTERRUPTED:
                    talk.terminal.type("\x03")
                elif at == RESIZED:
                    talk.terminal.resize(60)
                else:
                    verifier.process.kill()
                    verifier.process.wait()
                    talk.terminal.wait_for_raw("waiting for the verifier")
                    port = int(verifier.url.rpartition(":")[2])
                    again = serving.serve("verifier_server.app:app", serving.variables(**target), port=port)
                    stack.enter_context(again)
                talk.wait_for_prompt()
            talk.say("/stats")
            talk.say(f"/save {file}")
            talk.leave()
        assert "Traceback" not in talk.terminal.text and "interrupted" in talk.terminal.text
        messages = json.loads(file.read_text())["messages"]
        assert [each["content"] for each in messages[::2]] == QUESTIONS and len(messages) == 40
        with httpx.Client(base_url=verifier.url, timeout=300, trust_env=False) as client:
            for at in range(len(QUESTIONS)):
                asked, answer = messages[: 2 * at + 1], messages[2 * at + 1]["content"]
                body = {"model": "", "messages": asked, "max_tokens": LENGTH, "temperature": 0}
                reply = client.post("/v1/chat/completions", json=body).raise_for_status().json()
                alone = reply["choices"][0]["message"]["content"]
                assert alone.startswith(answer) if at == INTERRUPTED else alone == answer
