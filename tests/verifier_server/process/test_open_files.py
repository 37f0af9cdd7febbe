"""The limit of open files is raised as far as it may be."""

import asyncio
import resource

import pytest

from verifier_server.app import create_app
from verifier_server.process.open_files import SPARE, allow_files
from verifier_server.settings import Settings


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The soft and the hard limit of a system that is made up."""
    limits = [256, 1000]
    monkeypatch.setattr(resource, "getrlimit", lambda _which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, given: limits.__setitem__(slice(None), given))
    return limits


def test_it_becomes_the_hard_one(limits: list[int], caplog: pytest.LogCaptureFixture) -> None:
    allow_files(1000 - SPARE)
    assert limits == [1000, 1000]
    assert not caplog.records


def test_too_few_for_the_sessions_are_told(limits: list[int], caplog: pytest.LogCaptureFixture) -> None:
    allow_files(1001 - SPARE)
    assert limits == [1000, 1000]
    (record,) = caplog.records
    assert "at most 1000 files" in record.message


def test_the_application_does_so_at_its_start(limits: list[int]) -> None:
    app = create_app(Settings(model="8", backend="scripted"))

    async def started() -> None:
        async with app.router.lifespan_context(app):
            assert limits == [1000, 1000]

    asyncio.run(started())
