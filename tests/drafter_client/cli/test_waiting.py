"""A verifier that does not answer yet: commands that last wait for it, and say so once."""

import socket
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest

from drafter_client.cli.steps import once_there
from drafter_client.errors import BadKey, VerifierUnreachable
from tests.drafter_client.cli.command_line import TOY, Command

AWAY = VerifierUnreachable("no verifier answers")


def test_it_is_asked_until_it_is_there_and_said_once() -> None:
    said: list[str] = []
    kept: list[Callable[[str], object]] = []
    left = [AWAY, AWAY, AWAY]

    def make(notice: Callable[[str], object]) -> str:
        notice("one is away")
        if left:
            raise left.pop()
        kept.append(notice)
        return "a pair"

    pauses: list[float] = []
    assert once_there(make, 300.0, said.append, pauses.append, lambda: 0.0) == "a pair"
    assert said == ["one is away", "waiting for the verifier, 300 s at most (--patience): no verifier answers"]
    assert len(pauses) == 3
    kept[0]("one is back")
    assert said[2:] == ["one is back"]


@pytest.mark.parametrize(("patience", "asked"), [(0.0, 1), (2.5, 4)])
def test_the_wait_has_an_end(patience: float, asked: int) -> None:
    now, count = 0.0, 0

    def make(notice: Callable[[str], object]) -> None:
        nonlocal count
        count += 1
        raise AWAY

    def sleep(seconds: float) -> None:
        nonlocal now
        now += 1.0

    with pytest.raises(VerifierUnreachable):
        once_there(make, patience, lambda _: None, sleep, lambda: now)
    assert count == asked


def test_what_waiting_does_not_mend_is_raised() -> None:
    def make(notice: Callable[[str], object]) -> None:
        raise BadKey("no")

    with pytest.raises(BadKey):
        once_there(make, 300.0, lambda _: None)


@pytest.fixture
def nobody() -> str:
    """An address at which nothing answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("command", ["chat", "serve"])
def test_chat_and_serve_wait(
    drafter: Command, nobody: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, command: str
) -> None:
    port = ["--port", "0"] if command == "serve" else []
    ran = drafter(command, "--verifier", nobody, *TOY, *port, "--patience", "0")
    assert ran.status == 1 and ran.err.startswith(f"drafter: no verifier answers at {nobody} (")

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("drafter_client.cli.steps.once_there", partial(once_there, sleep=interrupted))
    ran = drafter(command, "--verifier", nobody, *TOY, *port)
    assert (ran.status, ran.out) == (130, "")
    said = caplog.text if command == "serve" else ran.err
    assert f"waiting for the verifier, 300 s at most (--patience): no verifier answers at {nobody} (" in said
    assert ran.err.endswith("\ndrafter: interrupted\n")
