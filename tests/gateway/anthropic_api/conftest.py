"""Fixtures with Anthropic's own client, of each service of `tests.gateway.openai_api.conftest`."""

from collections.abc import Iterator

import anthropic
import pytest

from tests.gateway.openai_api.conftest import endpoints


@pytest.fixture(scope="module", params=["target", "drafter"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a service with Anthropic's endpoints."""
    with endpoints(request.param) as (found, _):
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client
