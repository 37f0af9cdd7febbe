"""Fixtures: one verifier with the toy target for all tests of a module, and a client of it for each test."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest

from drafter_client.http import retries, verifiers
from drafter_client.http.client import VerifierClient
from drafter_client.http.connection import HttpConnection
from specpair.command_line.setting_sources import VARIABLE
from tests.drafter_client.another_model import Links
from tests.drafter_client.cli.command_line import Command, runner
from tests.drafter_client.support import Verifier, serving
from tests.waiting import no_thread_left


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with serving() as running:
        yield running


@pytest.fixture
def client(verifier: Verifier) -> Iterator[VerifierClient]:
    with closing(VerifierClient(verifier.url)) as open_client:
        yield open_client


@pytest.fixture(autouse=True)
def _no_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DRAFTER_") or name == VARIABLE]:
        monkeypatch.delenv(name)


@pytest.fixture
def drafter(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return runner(capsys, monkeypatch)


@pytest.fixture
def no_thread_is_left(verifier: Verifier) -> Iterator[None]:
    """No thread of the drafter is left; the verifier's threads run before the test."""
    with no_thread_left():
        yield


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries, health checks and looks at verifiers follow each other without a pause."""
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.0005)
    monkeypatch.setattr(retries, "CHECK_PAUSE", 0.01)
    monkeypatch.setattr(verifiers, "LOOK_PAUSE", 0.02)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Links:
    links, respond, events = Links(), HttpConnection.respond, HttpConnection.events

    @contextmanager
    def responding(self: HttpConnection, *asked: Any, **more: Any) -> Iterator[httpx.Response]:
        links.use(self.url)
        with respond(self, *asked, **more) as response:
            yield response

    def streaming(self: HttpConnection, response: httpx.Response) -> Iterator[tuple[str, bytes]]:
        for event in events(self, response):
            yield event
            links.use(self.url, seconds=0.0)

    monkeypatch.setattr(HttpConnection, "respond", responding)
    monkeypatch.setattr(HttpConnection, "events", streaming)
    return links
