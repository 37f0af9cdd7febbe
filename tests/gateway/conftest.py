"""What the tests of all of the gateway's rooms share."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def no_fault_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a request holds, it is no fault of the service."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
