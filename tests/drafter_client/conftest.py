"""Fixtures: one verifier with the toy target for all tests of a module, and a client of it for each test."""

import os
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from drafter_client.http import retries
from drafter_client.http.client import VerifierClient
from specpair.command_line.setting_sources import VARIABLE
from tests.drafter_client.cli.command_line import Command, runner
from tests.drafter_client.support import Verifier, serving


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
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(5.0)  # it may be about to end
    assert set(threading.enumerate()) <= before


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries after a broken connection follow each other without a pause."""
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.0005)
