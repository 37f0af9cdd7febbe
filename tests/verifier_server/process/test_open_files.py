"""`allow_files` raises the limit of open files as far as allowed."""

import asyncio
import resource

import pytest

from verifier_server.app import SPARE, allow_files, create_app
from verifier_server.settings import Settings


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The soft and the hard limit of a simulated system."""
    limits = [256, 1000]
    monkeypatch.setattr(resource, "getrlimit", lambda _which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, given: limits.__setitem__(slice(None), given))
    return limits


def test_soft_limit_becomes_the_hard_limit(limits: list[int], caplog: pytest.LogCaptureFixture) -> None:
    allow_files(1000 - SPARE)
    assert limits == [1000, 1000]
    assert not caplog.records


def test_limit_too_low_for_the_sessions_is_logged(limits: list[int], caplog: pytest.LogCaptureFixture) -> None:
    allow_files(1001 - SPARE)
    assert limits == [1000, 1000]
    (record,) = caplog.records
    assert "at most 1000 files" in record.message


def test_application_raises_the_limit_at_its_start(limits: list[int]) -> None:
    app = create_app(Settings(model="8", backend="scripted"))

    async def started() -> None:
        async with app.router.lifespan_context(app):
            assert limits == [1000, 1000]

    asyncio.run(started())
