"""What systemd is told: by whom it asks, and no sooner and no longer than it is true."""

import asyncio
import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.router.app import create_app
from gateway.router.settings import RouterSettings
from specpair.http_service.observability.health import Supervisor


@pytest.fixture
def told(tmp_path: Path) -> Iterator[socket.socket]:
    """Where systemd would listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(os.fspath(tmp_path / "s"))
        yield listening


def heard(told: socket.socket) -> list[str]:
    """The messages so far."""
    messages = []
    while select.select([told], [], [], 0.0)[0]:
        messages.append(told.recv(4096).decode())
    return messages


def test_assignments_are_lines_of_a_datagram(told: socket.socket) -> None:
    Supervisor(environment={"NOTIFY_SOCKET": told.getsockname()}).tell("READY=1", "STATUS=the model is loaded")
    assert heard(told) == ["READY=1\nSTATUS=the model is loaded"]


@pytest.mark.parametrize(
    "address", ["", "/nowhere/at/all", "vsock:2:1234", "x" * 500], ids=["", "gone", "vsock", "long"]
)
def test_who_does_not_listen_is_told_nothing(address: str) -> None:
    Supervisor(environment={"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000"}).tell("READY=1")


@pytest.mark.parametrize(
    ("usec", "pid", "asked"),
    [
        ("20000", None, [0.02]),
        ("20000", str(os.getpid()), [0.02]),
        ("20000", "1", []),
        ("", None, []),
        ("0", None, []),
        ("soon", None, []),
        ("-5", None, []),
    ],
    ids=["any", "this one", "another", "none", "zero", "no number", "negative"],
)
def test_the_watchdog_is_for_the_process_that_it_names(
    told: socket.socket, usec: str, pid: str | None, asked: list[float]
) -> None:
    variables = {"NOTIFY_SOCKET": str(told.getsockname()), "WATCHDOG_USEC": usec}
    found: list[float] = []

    def works(seconds: float) -> bool:
        found.append(seconds)
        return True

    supervisor = Supervisor(works, variables if pid is None else variables | {"WATCHDOG_PID": pid})

    async def run() -> None:
        supervisor.start()
        await asyncio.sleep(0)
        supervisor.end()

    asyncio.run(run())
    assert found == asked and heard(told) == ["WATCHDOG=1"] * len(asked)


def test_nothing_is_told_while_nothing_works(told: socket.socket) -> None:
    states = iter([True, False, False, True])
    over = asyncio.Event()

    def works(_: float) -> bool:
        state = next(states, None)
        if state is None:
            over.set()
        return bool(state)

    async def run() -> None:
        variables = {"NOTIFY_SOCKET": str(told.getsockname()), "WATCHDOG_USEC": "1000"}
        supervisor = Supervisor(works, variables)
        supervisor.start()
        await over.wait()
        supervisor.end()

    asyncio.run(run())
    assert heard(told)[:3] == ["WATCHDOG=1", "STATUS=hangs", "WATCHDOG=1"]


def test_a_router_is_ready_once_it_serves(told: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(told.getsockname()))
    app = create_app(RouterSettings())

    async def run() -> None:
        async with app.router.lifespan_context(app):
            assert heard(told) == ["READY=1"]

    asyncio.run(run())
