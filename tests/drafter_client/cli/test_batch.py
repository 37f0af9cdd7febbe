"""`drafter --prompt-file` with a real verifier: results in order, resumed runs, interrupts and errors."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import text_run
from drafter_client.cli import batch as many
from drafter_client.display.progress import WritingProgress
from drafter_client.errors import ConnectionLost
from drafter_client.generation.server_written import served
from specpair.engines.errors import EngineLost
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Held, Verifier, plain, serving
from tests.paths import ROOT
from tests.waiting import no_thread_left, until

PROMPTS = [f"def f{at}(x{'y' * (at % 3)}):" for at in range(7)]
NGRAM = ["--backend", "ngram"]
TARGET = ["--mode", "target"]


@pytest.fixture(autouse=True)
def _nothing_is_left(verifier: Verifier) -> Iterator[None]:
    with no_thread_left():
        yield
    assert verifier.sessions == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(PROMPTS), encoding="utf-8")
    return path


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def _flags(verifier: Verifier, prompts: Path, *more: str) -> list[str]:
    return ["--verifier", verifier.url, "--prompt-file", str(prompts), "--max-tokens", "24", *more]


def _expected(prompt: str, count: int = 24) -> list[int]:
    backend = ScriptedBackend(Script(seed=1))
    return plain(backend, backend.vocabulary.encode(prompt), count)


def _text(prompt: str, count: int = 24) -> str:
    return bytes(_expected(prompt, count)).decode(errors="replace")


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n")[:-1]]


def _without_metrics(lines: list[dict[str, Any]]) -> list[Any]:
    """The keys that are the same in every run."""
    names = ("index", "id", "prompt", "asked", "text", "token_ids", "finish_reason", "sampling", "error")
    return [{name: line.get(name) for name in names} for line in lines]


@pytest.mark.parametrize(
    ("way", "concurrency"),
    [(way, count) for way in (NGRAM, TARGET, TOY, [*TOY, "--mode", "auto"]) for count in ("1", "3", "64")],
    ids=str,
)
def test_each_text_is_that_of_its_prompt_alone_and_in_order(
    drafter: Command, verifier: Verifier, prompts: Path, way: list[str], concurrency: str
) -> None:
    ran = drafter(*_flags(verifier, prompts, *way, "--concurrency", concurrency))
    assert (ran.status, ran.out) == (0, "".join(_text(prompt) + "\n" for prompt in PROMPTS))


def test_json_prints_the_lines_of_the_results_file(
    drafter: Command, verifier: Verifier, prompts: Path, output: Path
) -> None:
    how = [*NGRAM, "--seed", "5", "--temperature", "0.9"]
    flags = _flags(verifier, prompts, *how, "--concurrency", "3")
    ran = drafter(*flags, "--json")
    lines = _lines(ran.out)
    assert ran.status == 0 and ran.out.isascii() and [line["index"] for line in lines] == list(range(7))
    assert [line["prompt"] for line in lines] == PROMPTS and {line["sampling"]["seed"] for line in lines} == {5}
    into = drafter(*flags, "--output", str(output))
    assert (into.status, into.out) == (0, "")
    assert _without_metrics(_lines(output.read_text())) == _without_metrics(lines)
    one = ["--verifier", verifier.url, "--prompt", PROMPTS[3], "--max-tokens", "24"]
    alone = drafter(*one, *how, "--json")
    report = json.loads(alone.out)
    assert report["token_ids"] == lines[3]["token_ids"] and report.keys() <= lines[3].keys()


def test_a_json_line_has_its_own_settings(drafter: Command, verifier: Verifier, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    objects = [{"prompt": "two\nlines", "id": "x"}, {"prompt": "b", "max_tokens": 5, "temperature": 0.9, "seed": 3}]
    path.write_text("\n".join(map(json.dumps, objects)) + "\n")
    first, second = _lines(drafter(*_flags(verifier, path, *NGRAM, "--json", "--seed", "8")).out)
    assert (first["id"], first["token_ids"], first["sampling"]["seed"]) == ("x", _expected("two\nlines"), 8)
    assert (second["id"], second["generated_tokens"], second["sampling"]["seed"]) == (None, 5, 3)
    assert second["sampling"]["temperature"] == second["asked"]["temperature"] == 0.9


@pytest.fixture
def small() -> Iterator[Verifier]:
    """A verifier with a small context."""
    with serving(ScriptedBackend(Script(seed=1), context_length=64)) as verifier:
        yield verifier
        assert verifier.sessions == 0


@pytest.mark.parametrize("way", [NGRAM, TARGET], ids=["ngram", "target"])
def test_a_failed_prompt_has_an_error_result_and_is_retried(
    drafter: Command, small: Verifier, tmp_path: Path, output: Path, way: list[str]
) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(["a", "b" * 99, "c"]))
    flags = _flags(small, path, *way, "--concurrency", "2")
    complaint = "the prompt has 100 tokens, the context holds 64"
    for arguments in ([], ["--json"], ["--output", str(output)]):
        ran = drafter(*flags, *arguments)
        assert ran.status == 1 and f"drafter: prompt 2: {complaint}" in ran.err
        tail = "drafter: 1 of 3 prompts failed" + ("; the same command tries again" if "--output" in arguments else "")
        assert ran.err.endswith(f"{tail}\n")
        if not arguments:
            assert ran.out == _text("a") + "\n" + _text("c") + "\n"
        else:
            first, second, third = _lines(ran.out or output.read_text())
            assert (first["token_ids"], third["token_ids"]) == (_expected("a"), _expected("c"))
            assert second["error"]["code"] == "prompt_too_long" and second["error"]["message"].startswith(complaint)
    again = drafter(*flags, "--output", str(output))
    assert again.status == 1
    assert again.err.startswith(f"drafter: {output} holds 2 of 3 texts already, and 1 that failed: tried again\n")
    assert [line["index"] for line in _lines(output.read_text())] == [0, 1, 2]


def test_a_run_continues_from_the_results_file(
    drafter: Command, verifier: Verifier, prompts: Path, output: Path
) -> None:
    flags = _flags(verifier, prompts, *NGRAM, "--output", str(output), "--seed", "1")
    assert drafter(*flags).status == 0
    whole = output.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    output.write_bytes(whole[: ends[2] + 50])  # three lines, and part of one
    ran = drafter(*flags, "--concurrency", "2")
    assert ran.status == 0 and ran.err.startswith(f"drafter: {output} holds 3 of 7 texts already\n")
    assert output.read_bytes().startswith(whole[: ends[2]])
    assert _without_metrics(_lines(output.read_text())) == _without_metrics(_lines(whole.decode()))
    whole = output.read_bytes()
    ran = drafter(*flags)
    assert ran.status == 0 and f"{output} holds 7 of 7 texts already" in ran.err and output.read_bytes() == whole


def test_results_of_other_settings_are_refused(
    drafter: Command, verifier: Verifier, prompts: Path, output: Path
) -> None:
    flags = _flags(verifier, prompts, *NGRAM, "--output", str(output))
    assert drafter(*flags).status == 0
    whole = output.read_bytes()
    ran = drafter(*flags, "--max-tokens", "25", "--seed", "1")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        f"drafter: {output} holds the results of another run: prompt 1 had other settings: max_tokens was 24 and is "
        "25, seed was null and is 1. Give another --output, or the settings of that run\n"
    )
    assert output.read_bytes() == whole


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("missing", None, "the prompt file {} cannot be read: No such file or directory"),
        ("folder", None, "the prompt file {} cannot be read: Is a directory"),
        ("p.txt", b"caf\xe9", "{}, line 1: this is not UTF-8 text"),
        ("p.txt", b"", "{} is empty: write one prompt a line"),
        ("p.jsonl", b'{"prompt": "a", "n": 1}', "{}, line 1: 'n' is no key of a prompt, which are "),
    ],
)
def test_a_bad_prompt_file_is_refused_before_loading(
    drafter: Command, tmp_path: Path, name: str, data: bytes | None, complaint: str
) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    ran = drafter("--prompt-file", str(path))
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert ran.err.startswith(f"drafter: {complaint.format(path)}")


def test_a_prompt_may_be_a_conversation_with_stop_strings(drafter: Command, tmp_path: Path) -> None:
    path, results = tmp_path / "p.jsonl", tmp_path / "r.jsonl"
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    ids = [256, *b"user: a", 257, *b"assistant: b", 257, *b"user: c", 257, *b"assistant:"]
    text = plain(ScriptedBackend(Script(seed=1)), ids, 24)
    at = next(at for at in range(8, 24) if text[at] < 128 and text[at] not in text[:at])
    path.write_text(json.dumps({"messages": said, "stop": chr(text[at])}) + "\n\n" + json.dumps({"messages": said}))
    target = ScriptedBackend(Script(seed=1))
    target.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}assistant:"
    with serving(target) as verifier:
        flags = _flags(verifier, path, *NGRAM, "--output", str(results))
        assert drafter(*flags).status == 0
        again = drafter(*flags)
    stopped, whole = _lines(results.read_text())
    assert (stopped["token_ids"], stopped["ended_by"]) == (text[: at + 1], "stop_string")
    assert (whole["token_ids"], whole["ended_by"], whole["prompt"]) == (text, "max_tokens", said)
    assert "holds 2 of 2 texts already" in again.err


@pytest.mark.parametrize("error", [ConnectionLost("the connection broke"), EngineLost("the GPU fell out")], ids=repr)
@pytest.mark.parametrize("kept", [False, True], ids=["shown", "kept"])
def test_a_fatal_error_stops_the_run_and_keeps_finished_texts(
    drafter: Command,
    verifier: Verifier,
    prompts: Path,
    output: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    kept: bool,
) -> None:
    calls = iter(range(9))

    def failing(*arguments: Any) -> Any:
        if next(calls) >= 2:
            raise error
        return served(*arguments)

    monkeypatch.setattr(text_run, "served", failing)
    kept_in = ["--output", str(output)] if kept else []
    ran = drafter(*_flags(verifier, prompts, *TARGET, *kept_in, "--patience", "0"))
    monkeypatch.setattr(text_run, "served", served)
    so_far = f"2 of 7 texts are in {output}; the same command goes on from there"
    if not kept:
        so_far = "2 of 7 texts are finished; with --output FILE, the same command could go on from there"
        assert ran.out == "".join(_text(prompt) + "\n" for prompt in PROMPTS[:2])
    assert ran.status == 1 and ran.err.endswith(f"drafter: stopped: {so_far}\ndrafter: {error}\n")
    if kept:
        assert [line["index"] for line in _lines(output.read_text())] == [0, 1]
        assert drafter(*_flags(verifier, prompts, *TARGET, "--output", str(output))).status == 0
        assert [line["token_ids"] for line in _lines(output.read_text())] == [_expected(each) for each in PROMPTS]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send to one process")
@pytest.mark.parametrize("way", [NGRAM, TARGET], ids=["ngram", "target"])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_after_an_interrupt_the_same_command_continues(
    drafter: Command,
    verifier: Verifier,
    prompts: Path,
    output: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: list[str],
    concurrency: int,
) -> None:
    write = many.write

    def interrupting(pair: Any, prompt: Any, progress: WritingProgress, stop: threading.Event) -> Any:
        """Ctrl-C while the third prompt is written."""

        class Interrupting:
            def wrote(self, tokens: int) -> None:
                assert verifier.sessions >= (1 if way is NGRAM else 0)
                os.kill(os.getpid(), signal.SIGINT)
                assert stop.wait(20)
                assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL, "a second one ends the process at once"

        return write(pair, prompt, Interrupting() if prompt.index == 2 else progress, stop)  # type: ignore[arg-type]

    flags = _flags(verifier, prompts, *way, "--concurrency", str(concurrency), "--output", str(output))
    with monkeypatch.context() as patched:
        patched.setattr(many, "write", interrupting)
        ran = drafter(*flags)
    lines = _lines(output.read_text())
    assert 2 not in [line["index"] for line in lines] and len(lines) < 7
    assert ran.status == 130 and ran.err.endswith(
        f"drafter: interrupted: {len(lines)} of 7 texts are in {output}; the same command goes on from there\n"
    )
    assert verifier.sessions == 0
    ran = drafter(*flags)
    assert ran.status == 0 and [line["token_ids"] for line in _lines(output.read_text())] == [
        _expected(each) for each in PROMPTS
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send to one process")
@pytest.mark.parametrize("way", [NGRAM, TARGET], ids=["ngram", "target"])
def test_ctrl_c_waits_for_no_pass(prompts: Path, way: list[str]) -> None:
    held, asked = Held(Script(seed=1)), threading.Event()
    with serving(held) as verifier:
        held.beyond(1, asked.set)
        held.go(1)
        flags = _flags(verifier, prompts, *way, "--json", "--concurrency", "2")
        with subprocess.Popen([sys.executable, "-m", "drafter_client", *flags], cwd=ROOT, stderr=-1, stdout=-1) as run:
            assert asked.wait(60)
            run.send_signal(signal.SIGINT)
            _, complaints = run.communicate(timeout=60)
        assert run.returncode == 130 and b"Traceback" not in complaints, complaints
        held.go()
        until(lambda: verifier.sessions == 0, "the verifier keeps a session")


def test_on_a_terminal_a_rule_names_the_prompt_of_each_text(
    drafter: Command, verifier: Verifier, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    ran = drafter(*_flags(verifier, prompts, *NGRAM))
    assert re.findall(r"^prompt (\d) ─", re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", ran.out), re.MULTILINE) == list(
        "1234567"
    )
    assert "tokens" in ran.err and "7/7" in ran.err and "prompt 1 ─" not in ran.err
