"""The examples, run as a user runs them against a verifier with the shipped target."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.drafter_client.support import Verifier
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import EPSILON, Reference

ROOT = Path(__file__).resolve().parents[2]
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def _run(*command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=120
    )


def _simple(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return _run(sys.executable, "examples/simple_client.py", *arguments, **variables)


@pytest.mark.parametrize("text", PROMPTS[:4])
def test_the_simple_client_writes_what_the_target_writes(verifier: Verifier, reference: Reference, text: str) -> None:
    ran = _simple(verifier.url, text, "--max-tokens", "40")
    assert (ran.returncode, ran.stderr) == (0, "")
    ids, figures, verdict, *shown = ran.stdout.split("\n")
    tokens = [int(word) for word in ids.removeprefix("token ids: ").split()]
    assert len(tokens) == 40
    assert all(margin < EPSILON for margin in reference.flips(reference.encode(text), tokens))
    assert verdict == "the target alone says the same:"
    assert "\n".join(shown) == text + reference.backend.vocabulary.decode(tokens).decode(errors="replace") + "\n"
    requests, guessed = re.fullmatch(r"40 tokens in (\d+) requests, (\d+) of them guessed right", figures).groups()  # type: ignore[union-attr]
    assert int(guessed) > 0 and int(requests) <= 40


def test_the_simple_client_needs_no_more_than_the_standard_library(verifier: Verifier) -> None:
    ran = _run(sys.executable, "-I", "-S", "examples/simple_client.py", verifier.url, "import", "--max-tokens", "4")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_simple_client_stops_where_the_text_ends(verifier: Verifier, reference: Reference) -> None:
    text = next(text for text in PROMPTS if len(reference.continues(reference.encode(text), 20)) < 20)
    expected = reference.continues(reference.encode(text), 20)
    ran = _simple(verifier.url, text)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[0] == " ".join(["token ids:", *map(str, expected)])


def test_the_simple_client_goes_round_proxies_and_tells_what_is_wrong(verifier: Verifier) -> None:
    assert _simple(verifier.url, "import", "--max-tokens", "4", http_proxy="http://127.0.0.1:9").returncode == 0
    ran = _simple(verifier.url, "")
    assert ran.returncode == 1 and "the prompt is empty" in ran.stderr
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ran = _simple(url, "import")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"simple_client: no verifier at {url}: ") and ran.stderr.count("\n") == 1


@needs_curl
def test_the_curl_script_shows_the_whole_exchange(verifier: Verifier) -> None:
    before = verifier.sessions
    ran = _run("examples/curl.sh", verifier.url, http_proxy="http://127.0.0.1:9")
    assert (ran.returncode, ran.stderr) == (0, "")
    asked, answers = zip(*re.findall(r"^((?:GET|POST|DELETE) .*)\n(\{.*\})$", ran.stdout, re.MULTILINE), strict=True)
    assert [" ".join(line.split()[:2]).partition("curl-")[0] for line in asked] == [
        *("GET /health", "GET /model", "POST /prefill", "POST /verify", "POST /verify"),
        *("DELETE /sessions/", "POST /generate"),
    ]
    health, model, prefill, verify, plain, deleted, alone = map(json.loads, answers)
    assert health["status"] == "ready" and model["model"] == "stdlib-target-q8_0"
    written = prefill["tokens"][:1] + verify["tokens"][1:] + plain["tokens"][1:]
    assert verify["accepted_prefix_len"] == 3 and verify["position"] == prefill["position"]
    assert len(written) == 4 and written == alone["token_ids"][:4]
    assert deleted["deleted"] is True and verifier.sessions == before
    events = re.findall(r"^event: (\w+)\ndata: (.*)$", ran.stdout, re.MULTILINE)
    assert [name for name, _ in events] == ["tokens"] * 8 + ["end"]
    assert json.loads(events[-1][1])["token_ids"] == alone["token_ids"][:8]


@needs_curl
def test_the_curl_script_stops_at_the_first_refusal() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ran = _run("examples/curl.sh", url)
    assert ran.returncode == 7  # curl's own: could not connect
    assert ran.stdout.strip() == "GET /health"
