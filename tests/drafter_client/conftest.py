"""One verifier with the toy target for all tests of a module, and a client of it for each test."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from drafter_client.client import VerifierClient
from tests.drafter_client.command_line import Command, runner
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
def _no_key_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAFTER_API_KEY", raising=False)


@pytest.fixture
def drafter(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return runner(capsys, monkeypatch)
