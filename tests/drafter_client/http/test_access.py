"""A verifier that refuses this drafter: one line that says what to do, before any wait."""

from contextlib import closing

import pytest

from drafter_client.errors import BadKey
from drafter_client.http.client import VerifierClient
from specpair.http_service.keys import access as addresses
from specpair.protocol.errors import Forbidden
from specpair.protocol.service_responses import HealthResponse
from tests.drafter_client.cli.command_line import Command
from tests.drafter_client.support import serving


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection comes from an address on the Internet."""
    stranger = addresses.stranger
    monkeypatch.setattr(
        "specpair.http_service.keys.access.stranger", lambda _, forwarded: stranger("203.0.113.9", forwarded)
    )


@pytest.mark.usefixtures("far_away")
def test_a_refused_address_is_reported_with_what_to_set(drafter: Command) -> None:
    with serving() as verifier:
        ran = drafter("--verifier", verifier.url, "--prompt", "x", "--backend", "ngram")
    assert (ran.status, ran.out) == (1, "")
    said = [line for line in ran.err.splitlines() if line.strip()]
    assert len(said) == 1
    assert "this verifier has no key" in said[0] and "VERIFIER_API_KEY=<key>" in said[0] and "--api-key" in said[0]


@pytest.mark.usefixtures("far_away")
def test_a_client_that_will_be_refused_does_not_wait_for_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def health(_service: object) -> HealthResponse:
        return HealthResponse(status="loading", progress=0.1)

    monkeypatch.setattr("verifier_server.service.Service.health", health)
    with (
        serving() as verifier,
        closing(VerifierClient(verifier.url)) as client,
        pytest.raises(Forbidden, match="VERIFIER_INSECURE=1"),
    ):
        client.wait_until_ready(patience=0.0)
    with (
        serving(api_key="sesame") as verifier,
        closing(VerifierClient(verifier.url, api_key="wrong")) as client,
        pytest.raises(BadKey, match="does not take this key: give it with --api-key, or DRAFTER_API_KEY"),
    ):
        client.wait_until_ready(patience=0.0)
