"""The examples, run as a user runs them against a verifier with the shipped target."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from drafter_client import Mode, Options, Pair
from tests.drafter_client.support import Verifier, running
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import CONTEXT, EPSILON, Reference
from tests.paths import ROOT
from verifier_server.settings import Settings

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def _run(*command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    here = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(command, cwd=ROOT, env=here, capture_output=True, text=True, check=False, timeout=120)


def _example(name: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return _run(sys.executable, f"examples/{name}.py", *arguments, **variables)


def _simple(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return _example("simple_client", *arguments, **variables)


@pytest.fixture(scope="module")
def exact() -> Iterator[Verifier]:
    """One without near-ties, so that a text can be compared to the letter."""
    with running(Settings(rows=3, context=CONTEXT, threads=1, deterministic=True)) as started:
        yield started


def _says(verifier: Verifier, prompt: str, count: int, **sampling: float) -> str:
    """What the target says by itself."""
    with Pair(verifier.url, draft=None) as pair:
        return pair.generate(prompt, Options(max_tokens=count, mode=Mode.TARGET, **sampling)).read().text  # type: ignore[arg-type]


def test_the_sync_client_streams_what_the_target_writes(exact: Verifier) -> None:
    ran = _example("sync_client", exact.url, PROMPTS[1])
    assert (ran.returncode, ran.stderr) == (0, "")
    text, _, figures = ran.stdout.rpartition("\n-- ")
    assert text == _says(exact, PROMPTS[1], 48, seed=7, temperature=0.8)
    assert re.fullmatch(r"48 tokens at \d+ tokens/s, \d+ of \d+ drafts accepted\n", figures)


def test_the_async_client_writes_several_texts_at_once(exact: Verifier) -> None:
    ran = _example("async_client", exact.url, *PROMPTS[:3])
    assert (ran.returncode, ran.stderr) == (0, "")
    texts = re.split(r"\n-- \d+ of \d+ drafts accepted\n", ran.stdout)
    assert texts == [*(f"== {prompt}{_says(exact, prompt, 32)}" for prompt in PROMPTS[:3]), ""]


def test_the_custom_drafter_is_right_the_second_time(exact: Verifier) -> None:
    ran = _example("custom_drafter", exact.url, PROMPTS[2])
    assert (ran.returncode, ran.stderr) == (0, "")
    first, second, text = ran.stdout.split("\n", 2)
    assert text == PROMPTS[2] + _says(exact, PROMPTS[2], 48) + "\n"
    figures = [re.fullmatch(r"(\d+) rounds, (\d+) of (\d+) drafts accepted", line) for line in (first, second)]
    (rounds, accepted, _), (rounds_then, accepted_then, _) = (map(int, each.groups()) for each in figures if each)
    assert accepted == 0 and accepted_then > 20 and rounds_then < rounds / 2


@pytest.mark.parametrize("name", ["sync_client", "async_client", "custom_drafter", "simple_client"])
@pytest.mark.parametrize("arguments", [(), ("http://127.0.0.1:8000",)], ids=["nothing", "no prompt"])
def test_without_arguments_each_says_how_it_is_used(name: str, arguments: tuple[str, ...]) -> None:
    ran = _example(name, *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"usage: {name}.py URL PROMPT") and ran.stderr.count("\n") <= 2


@pytest.mark.parametrize("name", ["sync_client", "async_client", "custom_drafter", "simple_client"])
def test_a_key_is_taken_from_the_environment(name: str) -> None:
    with running(Settings(rows=2, context=CONTEXT, threads=1, api_key="sesame")) as locked:
        ran = _example(name, locked.url, PROMPTS[1], KEY="sesame")
        assert (ran.returncode, ran.stderr) == (0, "")
        ran = _example(name, locked.url, PROMPTS[1], KEY="wrong")
        assert ran.returncode == 1 and ran.stderr.startswith(f"{name}: ") and ran.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["sync_client", "async_client", "custom_drafter"])
def test_a_verifier_that_is_not_there_is_told_in_one_line(name: str) -> None:
    ran = _example(name, "http://127.0.0.1:9", "import")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"{name}: no verifier answers at ") and ran.stderr.count("\n") == 1


@pytest.mark.parametrize("text", PROMPTS[:4])
def test_the_simple_client_writes_what_the_target_writes(verifier: Verifier, reference: Reference, text: str) -> None:
    ran = _simple(verifier.url, text, "--max-tokens", "40")
    assert (ran.returncode, ran.stderr) == (0, "")
    ids, figures, verdict, *shown = ran.stdout.split("\n")
    tokens = [int(word) for word in ids.removeprefix("token ids: ").split()]
    assert len(tokens) == 40
    assert all(margin < EPSILON for margin in reference.flips(reference.encode(text), tokens))
    assert verdict == "the target alone generates the same text:"
    assert "\n".join(shown) == text + reference.backend.vocabulary.decode(tokens).decode(errors="replace") + "\n"
    requests, guessed = re.fullmatch(r"40 tokens in (\d+) requests, (\d+) draft tokens accepted", figures).groups()  # type: ignore[union-attr]
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
        *("GET /health", "GET /model", "POST /prefill", "POST /verify", "POST /verify", "POST /verify"),
        *("DELETE /sessions/", "POST /generate", "POST /generate", "POST /prefill", "POST /verify/batch"),
        "DELETE /sessions/",
    ]
    health, model, prefill, verify, told, plain, deleted, alone, resumed, again, batch, _ = map(json.loads, answers)
    assert health["status"] == "ready" and model["model"] == "stdlib-target-q8_0"
    written = prefill["tokens"][:1] + verify["tokens"][1:] + plain["tokens"]
    assert verify["accepted_prefix_len"] == 3 and verify["position"] == prefill["position"]
    assert told["tokens"] == verify["tokens"][3:] and told["timing"]["forward_ms"] == 0.0
    assert plain["position"] == told["position"] + 1 and plain["timing"]["forward_ms"] > 0.0
    assert len(written) == 5 and written == alone["token_ids"][:5]
    assert resumed["token_ids"] == alone["token_ids"]
    assert deleted["deleted"] is True and verifier.sessions == before
    first, second = batch["results"]
    assert first["position"] == again["position"] and first["accepted_prefix_len"] == 1
    assert second["error"]["code"] == "unknown_session"
    events = re.findall(r"^event: (\w+)\ndata: (.*)$", ran.stdout, re.MULTILINE)
    assert [name for name, _ in events] == ["open"] + ["tokens"] * 8 + ["end"]
    assert json.loads(events[-1][1])["token_ids"] == alone["token_ids"][:8]


@needs_curl
def test_the_curl_script_stops_at_the_first_refusal() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ran = _run("examples/curl.sh", url)
    assert ran.returncode == 7  # curl's own: could not connect
    assert ran.stdout.strip() == "GET /health"
