"""Control codes from a malicious verifier or in a report: none reaches the terminal unescaped."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.engines.vocabulary import Kind, Vocabulary
from tests.drafter_client.http.raw_server import Peer, answering
from tests.drafter_client.support import Verifier, serving
from tests.paths import ROOT
from tests.terminal.pseudo import Terminal, python, terminal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pseudo-terminals and /proc as on Linux")
DRAFTER = python("-m", "drafter_client")
TITLE = "\x1b]0;pwned\x07"  # sets the window's title
WRITTEN = r"\x1b]0;pwned\x07"
NAME = f"model[bold]{TITLE}[/nothing]\u202e\r\n"
TEXT = ["--prompt", "x", "--max-tokens", "60", "--backend", "ngram"]


class _Hostile(Vocabulary):
    """A vocabulary in which half of the tokens are control codes, some split between two tokens."""

    def __init__(self) -> None:
        pieces = [b"\x1b]0;pw", b"ned\x07", b"\x9b31m", b"\r", b"\x08", b"a", b"\n", b"\t"] * 32 + [b"<s>", b"</s>"]
        super().__init__(pieces, [Kind.ORDINARY] * 256 + [Kind.CONTROL] * 2, 256, frozenset({257}))

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        return [256] * add_begin + list(text.encode())


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    backend = ScriptedBackend(Script(seed=3))
    backend.vocabulary, backend.model_name = _Hostile(), NAME
    with serving(backend) as running:
        yield running


def control_codes(screen: Terminal) -> list[str]:
    """The control characters in the output, except those of the drafter: colours and redrawn lines."""
    return re.findall(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e]", without_drafter_codes(screen.raw))


def without_drafter_codes(raw: str) -> str:
    below = re.sub(r"\x1bD\x1b\[A\x1b7\r\x1b\[B(.*?)\x1b8", r"\1", raw, flags=re.DOTALL)  # the status line below a text
    return re.sub(r"\x1b\[[0-9;?]*[mKAhlJG]", "", below)


@pytest.mark.parametrize(
    "arguments",
    [
        [*TEXT[:4], "--mode", "target"],
        [*TEXT, "--mode", "remote"],
        [*TEXT, "--mode", "remote", "--verbose"],
        [*TEXT, "--mode", "remote", "--no-stream"],
        ["solo", "server", *TEXT[:4]],
    ],
    ids=["target", "remote", "verbose", "at the end", "solo"],
)
def test_control_codes_in_text_and_model_name_are_escaped(verifier: Verifier, arguments: list[str]) -> None:
    with terminal([*DRAFTER, *arguments, "--verifier", verifier.url], 200) as screen:
        assert screen.wait() == 0, screen.text
    assert not control_codes(screen)
    assert "\\x1b]0;pw" in screen.text
    assert "model[bold]" in screen.text and "pwned" in screen.text


def test_piped_text_is_unchanged(verifier: Verifier) -> None:
    command = [*DRAFTER, *TEXT[:4], "--mode", "target", "--stats", "--verifier", verifier.url]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60)
    assert b"\x1b]0;pw" in ran.stdout and b"\r" in ran.stdout and b"\\x1b" not in ran.stdout
    assert b"\x1b" not in ran.stderr and WRITTEN.encode() in ran.stderr


def test_control_codes_in_prompt_ids_are_escaped(verifier: Verifier, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "x", "id": TITLE}) + "\n" + json.dumps({"prompt": "y"}) + "\n")
    arguments = ["--prompt-file", str(prompts), *TEXT[2:], "--verifier", verifier.url]
    with terminal([*DRAFTER, *arguments], 200) as screen:
        assert screen.wait() == 0, screen.text
    assert not control_codes(screen)
    assert WRITTEN in screen.text


def test_control_codes_in_a_comparison_are_escaped(verifier: Verifier, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("x\n")
    arguments = ["compare", "--prompt-file", str(prompts), "--runs", "1", "--verifier", verifier.url]
    with terminal([*DRAFTER, *arguments, "--max-tokens", "8", "--backend", "ngram"], 200) as screen:
        assert screen.wait() == 0, screen.text
    assert not control_codes(screen)
    assert f"model[bold]{WRITTEN}[/nothing]" in screen.text


def test_control_codes_in_a_report_are_escaped(verifier: Verifier, tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    arguments = [*TEXT, "--mode", "remote", "--verifier", verifier.url, "--profile", str(folder)]
    with terminal([*DRAFTER, *arguments], 200) as screen:
        assert screen.wait() == 0, screen.text
    runs = folder / "runs.csv"
    recorded = runs.read_text()
    assert WRITTEN in recorded
    runs.write_text(recorded.replace(WRITTEN, TITLE))
    with terminal([*DRAFTER, "report", str(folder)], 200) as screen:
        assert screen.wait() == 0, screen.text
    assert not control_codes(screen)
    assert f"model[bold]{WRITTEN}" in screen.text


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("500 No", {"error": {"code": "engine_error", "type": "server_error", "message": f"broken {TITLE}"}}),
        ("503 No", {"status": "failed", "reason": f"broken {TITLE}"}),
        ("401 No", {"error": {"code": "unauthorized", "type": "invalid_request_error", "message": TITLE}}),
    ],
    ids=["error", "failed", "key"],
)
def test_control_codes_in_errors_are_escaped(status: str, body: object) -> None:
    def refuse(peer: Peer) -> None:
        while peer.read() is not None:
            peer.reply(json.dumps(body).encode(), status)

    with answering(refuse) as server, terminal([*DRAFTER, *TEXT, "--verifier", server.url], 200) as screen:
        assert screen.wait() == 1
    assert not control_codes(screen)
    assert WRITTEN in screen.text or status.startswith("401")
