"""Every test of the API runs with one process, and with two fronts before it."""

from collections.abc import Iterator

import pytest

from tests.verifier_server.conftest import LiveServer


@pytest.fixture(scope="module", autouse=True, params=[0, 2], ids=["one process", "fronts"])
def _fronts(request: pytest.FixtureRequest) -> Iterator[None]:
    LiveServer.fronts = request.param
    yield
    LiveServer.fronts = 0
