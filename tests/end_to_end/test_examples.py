"""The examples, the samples of docs/rest.md, and the pair in a folder with other files, run as they are."""

import json
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import drafter_client
from drafter_client import Mode, Options, Pair
from models import DEFAULT_DRAFT
from tests.drafter_client.support import Ticks, Verifier, running
from tests.end_to_end.prompts import PROMPTS
from tests.end_to_end.reference import CONTEXT, EPSILON, Reference
from tests.paths import ROOT
from verifier_server.settings import Settings

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def _run(*command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)


def _example(name: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return _run(sys.executable, f"examples/{name}.py", *arguments, **variables)


Here = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    """Runs an example in this process. Returns its status, what it printed, and its errors."""

    def run(name: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [f"examples/{name}.py", *arguments])
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capsys.readouterr()

    return run


def _simple(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return _example("simple_client", *arguments, **variables)


@pytest.fixture(scope="module")
def exact() -> Iterator[Verifier]:
    """A verifier with deterministic logits, so that texts can be compared exactly."""
    with running(Settings(slots=3, context=CONTEXT, threads=1, deterministic=True)) as started:
        yield started


@pytest.fixture(scope="module")
def locked() -> Iterator[Verifier]:
    """A verifier with a key."""
    with running(Settings(slots=2, context=CONTEXT, threads=1, api_key="sesame")) as started:
        yield started


def _target_text(verifier: Verifier, prompt: str, count: int, **sampling: float) -> str:
    """The text of the target alone."""
    with Pair(verifier.url, draft=None) as pair:
        return pair.generate(prompt, Options(max_tokens=count, mode=Mode.TARGET, **sampling)).read().text  # type: ignore[arg-type]


def test_sync_client_streams_the_target_s_text(exact: Verifier) -> None:
    ran = _example("sync_client", exact.url, PROMPTS[1])
    assert (ran.returncode, ran.stderr) == (0, "")
    text, _, statistics = ran.stdout.rpartition("\n-- ")
    assert text == _target_text(exact, PROMPTS[1], 48, seed=7, temperature=0.8)
    assert re.fullmatch(r"48 tokens at \d+ tokens/s, \d+ of \d+ draft tokens accepted\n", statistics)


def test_async_client_writes_several_texts_at_once(exact: Verifier) -> None:
    ran = _example("async_client", exact.url, *PROMPTS[:3])
    assert (ran.returncode, ran.stderr) == (0, "")
    texts = re.split(r"\n-- \d+ of \d+ draft tokens accepted\n", ran.stdout)
    assert texts == [*(f"== {prompt}{_target_text(exact, prompt, 32)}" for prompt in PROMPTS[:3]), ""]


def test_custom_drafter_drafts_a_repeated_prompt_correctly(
    exact: Verifier, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a clock that only reading moves: where one draft step looks slow, as on a busy machine, less is drafted.
    monkeypatch.setattr(drafter_client, "Pair", partial(Pair, clock=Ticks(1e-5)))
    status, printed, errors = here("custom_drafter", exact.url, PROMPTS[2])
    assert (status, errors) == (0, "")
    first, second, text = printed.split("\n", 2)
    assert text == PROMPTS[2] + _target_text(exact, PROMPTS[2], 48) + "\n"
    counts = [re.fullmatch(r"(\d+) rounds, (\d+) of (\d+) draft tokens accepted", line) for line in (first, second)]
    (rounds, accepted, _), (later_rounds, later_accepted, _) = (map(int, each.groups()) for each in counts if each)
    # How much is drafted depends on when answers come, too: a busy machine drafts less.
    assert accepted == 0 and later_accepted > 10 and later_rounds < 0.8 * rounds


@pytest.mark.parametrize("name", ["sync_client", "async_client", "custom_drafter", "simple_client"])
def test_examples_take_the_key_from_the_environment(here: Here, locked: Verifier, name: str) -> None:
    status, _, errors = here(name, locked.url, PROMPTS[1], KEY="sesame")
    assert (status, errors) == (0, "")
    status, _, errors = here(name, locked.url, PROMPTS[1], KEY="wrong")
    assert status == 1 and errors.startswith(f"{name}: ") and errors.count("\n") == 1


@pytest.mark.parametrize("text", PROMPTS[:4])
def test_simple_client_writes_the_target_s_text(exact: Verifier, reference: Reference, text: str) -> None:
    ran = _simple(exact.url, text, "--max-tokens", "40")
    assert (ran.returncode, ran.stderr) == (0, "")
    ids, statistics, comparison, *shown = ran.stdout.split("\n")
    tokens = [int(word) for word in ids.removeprefix("token ids: ").split()]
    assert len(tokens) == 40
    assert all(margin < EPSILON for margin in reference.flips(reference.encode(text), tokens))
    assert comparison == "the target alone generates the same text:"
    assert "\n".join(shown) == text + reference.backend.vocabulary.decode(tokens).decode(errors="replace") + "\n"
    counts = re.fullmatch(r"40 tokens in (\d+) requests, (\d+) draft tokens accepted", statistics)
    assert counts is not None
    requests, accepted = map(int, counts.groups())
    assert accepted > 0 and requests <= 40


def test_simple_client_ignores_proxies_and_reports_errors(verifier: Verifier) -> None:
    assert _simple(verifier.url, "import", "--max-tokens", "4", http_proxy="http://127.0.0.1:9").returncode == 0
    ran = _simple(verifier.url, "")
    assert ran.returncode == 1 and "the prompt is empty" in ran.stderr
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ran = _simple(url, "import")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"simple_client: no verifier at {url}: ") and ran.stderr.count("\n") == 1


@needs_curl
def test_curl_script_shows_the_whole_exchange(verifier: Verifier) -> None:
    before = verifier.sessions
    ran = _run("examples/curl.sh", verifier.url, http_proxy="http://127.0.0.1:9")
    assert (ran.returncode, ran.stderr) == (0, "")
    requests, replies = zip(*re.findall(r"^((?:GET|POST|DELETE) .*)\n(\{.*\})$", ran.stdout, re.MULTILINE), strict=True)
    assert [" ".join(line.split()[:2]).partition("curl-")[0] for line in requests] == [
        *("GET /health", "GET /model", "POST /prefill", "POST /verify", "POST /verify", "POST /verify"),
        *("DELETE /sessions/", "POST /generate", "POST /generate", "POST /prefill", "POST /verify/batch"),
        "DELETE /sessions/",
    ]
    health, model, prefill, verify, retry, plain, deleted, alone, resumed, again, batch, _ = map(json.loads, replies)
    assert health["status"] == "ready" and model["model"] == "stdlib-target-q8_0"
    written = prefill["tokens"][:1] + verify["tokens"][1:] + plain["tokens"]
    assert verify["accepted_prefix_len"] == 3 and verify["position"] == prefill["position"]
    assert retry["tokens"] == verify["tokens"][3:] and retry["timing"]["forward_ms"] == 0.0
    assert plain["position"] == retry["position"] + 1 and plain["timing"]["forward_ms"] > 0.0
    assert len(written) == 5 and written == alone["token_ids"][:5]
    assert resumed["token_ids"] == alone["token_ids"]
    assert deleted["deleted"] is True and verifier.sessions == before
    first, second = batch["results"]
    assert first["position"] == again["position"] and first["accepted_prefix_len"] == 1
    assert second["error"]["code"] == "unknown_session"
    events = re.findall(r"^event: (\w+)\ndata: (.*)$", ran.stdout, re.MULTILINE)
    assert [name for name, _ in events] == ["open"] + ["tokens"] * 8 + ["end"]
    assert json.loads(events[-1][1])["token_ids"] == alone["token_ids"][:8]


PAGE = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8").partition("\n## Rules\n")[0]
BLOCKS = re.findall(r"^```(?:json)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MORE = "…"  # among the fields of a sample: the reply has more of them


def _documents(text: str) -> list[Any]:
    """The JSON objects of a reply or a sample, which may be server-sent events."""
    rest = re.sub("^(event: .*|:.*|data: )", "", text, flags=re.MULTILINE).strip()
    found = []
    while rest:
        document, end = json.JSONDecoder(strict=False).raw_decode(rest)  # a sample may break a line in a text
        found.append(document)
        rest = rest[end:].strip()
    return found


def _alike(sample: Any, reply: Any) -> bool:
    """Whether both have the same fields, at every depth."""
    if isinstance(sample, list) and isinstance(reply, list) and any(isinstance(each, dict) for each in sample):
        return len(sample) == len(reply) and all(map(_alike, sample, reply))
    if not isinstance(sample, dict) or not isinstance(reply, dict):
        return isinstance(sample, dict) == isinstance(reply, dict)
    names = sample.keys() - {MORE}
    same = names <= reply.keys() if MORE in sample else names == reply.keys()
    return same and all(_alike(sample[name], reply[name]) for name in names)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_samples_have_the_fields_of_the_replies() -> None:
    compared = 0
    with running(Settings(slots=4, context=256, threads=1, draft_model=DEFAULT_DRAFT)) as verifier:
        for request, sample in zip(BLOCKS, [*BLOCKS[1:], "curl"], strict=True):
            if "curl" not in request:
                continue
            command = request.replace("http://127.0.0.1:8000", verifier.url)
            ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60)
            if "curl" in sample:  # another request: this one has no sample
                continue
            replies, samples = _documents(ran.stdout), _documents(sample.replace(f",{MORE}", f',"{MORE}":0'))
            for each in samples:
                assert any(_alike(each, reply) for reply in replies), (each, replies)
            assert _alike(samples[-1], replies[-1]), (samples[-1], replies[-1])
            compared += 1
    assert compared > 10


SERVE = """
import asyncio
from verifier_server.app import create_app
from verifier_server.settings import from_environment

async def serve():
    app = create_app(from_environment({"VERIFIER_SLOTS": "1", "VERIFIER_CONTEXT": "64"}))
    async with app.router.lifespan_context(app):
        await asyncio.to_thread(app.state.service.loader.wait)
        print(app.state.service.engine.backend.model_name)

asyncio.run(serve())
"""
WRITE = """
import sys
from drafter_client import Options, Pair

with Pair(sys.argv[1]) as pair:
    print(pair.generate("def main():", Options(max_tokens=16)).read().text, end="")
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with a module `models`, the name of our package that makes the models."""
    (tmp_path / "models.py").write_text("raise RuntimeError('this is not the models you are looking for')\n")
    return tmp_path


def _python(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_pair_runs_in_a_folder_with_a_module_models(hostile: Path) -> None:
    assert _python(hostile, "-c", "import models").returncode == 1, "the folder's module shadows the package"
    with running(Settings(slots=2, context=512, threads=1, deterministic=True)) as verifier:
        with Pair(verifier.url, draft=None) as pair:
            alone = pair.generate("def main():", Options(max_tokens=16, mode=Mode.TARGET)).read().text
        ran = _python(hostile, "-c", WRITE, verifier.url)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, alone, "")


def test_drafter_command_runs_in_that_folder(hostile: Path) -> None:
    ran = _python(hostile, "-m", "drafter_client", "solo", "draft", "--prompt", "import", "--max-tokens", "2", "--json")
    assert ran.returncode == 0, ran.stderr
