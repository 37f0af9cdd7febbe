"""What `drafter serve` logs of texts and of waits for the verifier: in the form of all its lines, on no screen."""

import json
import logging
import sys
from pathlib import Path

import httpx
import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.display.progress import said_of_loading, say_outage
from drafter_client.http.outages import Outage
from drafter_client.serve.app import create_app
from specpair.http_service.observability.logs import JsonFormatter
from tests.drafter_client.cli.command_line import Terminal
from tests.drafter_client.support import Verifier, plain, serving
from tests.gateway.openai_api.conftest import served
from tests.terminal.screen import Screen

PROMPT = "def f(x):"


def test_each_text_has_one_line(verifier: Verifier, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ids = plain(ScriptedBackend(Script(seed=1)), [256, *PROMPT.encode()], 24)
    at = next(at for at in range(8, 24) if ids[at] < 128 and ids[at] not in ids[:at])
    pair = Pair(verifier.url, DraftModel(Path("1"), "scripted"))
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 24}
    with served(create_app(pair, Options(mode=Mode.REMOTE), 1, 2)) as url:
        for more in ({}, {"stop": chr(ids[at])}, {"stream": True}):
            reply = httpx.post(f"{url}/v1/completions", json=body | more, trust_env=False, timeout=20)
            assert reply.status_code == 200
    lines = [json.loads(JsonFormatter().format(each)) for each in caplog.records if each.name == "specpair.texts"]
    ours = [line for line in lines if "session_id" not in line]  # the verifier in this process logs the same texts
    told = sorted((line["mode"], line["ended_by"], line["prompt_tokens"]) for line in ours)
    assert told == [("remote", "max_tokens", 10)] * 2 + [("remote", "stop_string", 10)]
    assert [line["generated_tokens"] for line in ours if line["ended_by"] == "max_tokens"] == [24, 24]
    assert all(line["tokens_per_second"] > 0 and 0 <= (line["acceptance_rate"] or 0) <= 1 for line in ours)


def test_the_line_of_a_failed_text_has_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with serving() as verifier:
        pair = Pair(verifier.url, DraftModel(Path("1"), "scripted"), patience=0.0)
    with served(create_app(pair, Options(mode=Mode.TARGET), 1, 2)) as url:
        reply = httpx.post(f"{url}/v1/completions", json={"prompt": PROMPT}, trust_env=False, timeout=20)
    assert reply.status_code == 503
    reason = reply.json()["error"]["message"]
    (record,) = (each for each in caplog.records if each.name == "specpair.texts")
    line = json.loads(JsonFormatter().format(record))
    assert (line["ended_by"], line["reason"]) == ("error", reason) and verifier.url in reason
    assert record.getMessage().endswith(f"ended by error: {reason}")


def test_waits_are_logged_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    say = say_outage(lines.append)
    for outage in (Outage(0.0, 9.0, "nothing answers"), Outage(1.0, 9.0, ""), Outage(2.0, 9.0, "", over=True)):
        say(outage)
    with said_of_loading(lines.append) as loading:
        for progress in (None, 0.05, 0.31, 0.39):
            loading(progress)
    assert lines == [
        "waiting for the verifier (nothing answers) … 0 s of 9 (--patience)",
        "the verifier answers again after 2 s",
        "the verifier is loading its model … 0%",
        "the verifier is loading its model … 30%",
    ]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("on_terminal", [False, True])
def test_the_progress_of_loading_is_one_row_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], on_terminal: bool
) -> None:
    screen, terminal = Screen(60), Terminal()
    if on_terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
    with said_of_loading() as loading:
        for progress in (None, 0.4, 0.9):
            loading(progress)
        during = terminal.getvalue()
    lines = [f"drafter: the verifier is loading its model … {percent}%" for percent in (0, 40, 90)]
    if on_terminal:
        screen.feed(during)
        assert screen.lines == lines[-1:]
        screen.feed(terminal.getvalue()[len(during) :] + "next")
        assert screen.lines == ["next"]
    else:
        assert capsys.readouterr().err.splitlines() == lines
