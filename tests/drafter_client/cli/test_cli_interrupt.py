"""Ctrl-C and waiting: the generated text is kept, the session is released, and the exit status is 130."""

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from backends.llama_cpp import library
from backends.registry import load
from backends.scripted import Script, ScriptedBackend
from drafter_client import draft_sources
from drafter_client.http.client import VerifierClient
from models import DEFAULT_DRAFT
from specpair.engines.load_options import LoadOptions
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import InterruptedAfter, Verifier, serving, toy_text
from tests.paths import ROOT


def _flags(verifier: Verifier, *more: str) -> list[str]:
    return ["--verifier", verifier.url, *TOY, "--prompt", "def f(x):", "--max-tokens", "24", "--draft-n", "3", *more]


def test_an_interrupt_keeps_the_text_and_releases_the_session(
    drafter: Command, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specpair.drafters.draft_model.ModelDrafter", InterruptedAfter)
    ran = drafter(*_flags(verifier, "--lockstep"))
    assert ran.status == 130
    assert ran.out == bytes(toy_text(5)).decode(errors="replace") + "\n"
    assert "ended by" in ran.err and "interrupt" in ran.err
    assert verifier.sessions == 0


def test_an_interrupt_before_any_text_is_reported(
    drafter: Command, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: VerifierClient, on_wait: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(VerifierClient, "wait_until_ready", interrupted)
    ran = drafter(*_flags(verifier))
    assert (ran.status, ran.out, ran.err) == (130, "", "\ndrafter: interrupted\n")


def test_an_interrupted_solo_run_reports_its_json(drafter: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = ScriptedBackend(Script(seed=1))
    extend = backend.extend
    monkeypatch.setattr(backend, "extend", lambda batch: extend(batch) if backend.passes < 5 else _ctrl_c())
    monkeypatch.setattr(draft_sources, "load", lambda name, options, progress: backend)
    ran = drafter("solo", "--prompt", "def f(x):", "--json")
    report = json.loads(ran.out)
    assert (ran.status, report["token_ids"], report["finish_reason"]) == (130, toy_text(5), None)
    assert report["total_ms"] > 0


def _ctrl_c() -> None:
    raise KeyboardInterrupt


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send to one process")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_a_signal_ends_the_program_in_order(how: signal.Signals) -> None:
    slow = ScriptedBackend(Script(seed=1, seconds_per_pass=0.01))
    with serving(slow) as verifier:
        command = [sys.executable, "-m", "drafter_client", *_flags(verifier), "--max-tokens", "900"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        first = process.stdout.read(1)  # text is being written
        process.send_signal(how)
        rest, complaints = process.communicate(timeout=60)
        assert verifier.sessions == 0
    expected = bytes(toy_text(900)).decode(errors="replace").encode()
    assert process.returncode == 128 + how and b"Traceback" not in complaints
    assert b"interrupt" in complaints
    written = (first + rest).removesuffix(b"\n")
    assert 0 < len(written) < len(expected)
    assert expected.startswith(written.removesuffix("\ufffd".encode()))


def test_the_progress_of_a_loading_verifier_is_shown_by_tenths(
    drafter: Command, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(self: VerifierClient, on_wait: Callable[[float | None], None]) -> None:
        for progress in (None, 0.0, 0.04, 0.11, 0.19, 0.95):
            on_wait(progress)

    monkeypatch.setattr(VerifierClient, "wait_until_ready", wait)
    ran = drafter(*_flags(verifier, "--json"))
    assert ran.err.splitlines() == [
        f"drafter: the verifier is loading its model … {percent}%" for percent in (0, 10, 90)
    ]
    assert json.loads(ran.out)["token_ids"] == toy_text(24)


@pytest.mark.parametrize("where", ["progress", "log"])
def test_an_interrupt_while_a_model_loads_is_not_lost(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Although the engine's callbacks cannot raise."""

    def speak(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)  # as early as can be, so that it would be raised within the callback

    if where == "log":
        monkeypatch.setattr(logging.getLogger("specpair.llama_cpp"), "log", speak)
        monkeypatch.setattr(library, "LEVELS", dict.fromkeys(range(6), 10))
    with pytest.raises(KeyboardInterrupt):
        load("llama_cpp", LoadOptions(model=DEFAULT_DRAFT), speak if where == "progress" else None).close()
    monkeypatch.undo()
    load("llama_cpp", LoadOptions(model=DEFAULT_DRAFT)).close()
