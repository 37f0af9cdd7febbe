"""The configuration of a service's server, and its addresses."""

import socket

import pytest
from fastapi import FastAPI

from specpair.http_service.listening import bind_sockets, configured, shown_address


def test_x_forwarded_for_is_not_trusted() -> None:
    """Otherwise, every process on this machine could claim many addresses and use a quota for each."""
    assert not configured(FastAPI()).proxy_headers


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_address_is_shown_as_in_a_url(host: str, shown: str) -> None:
    if ":" in host and not socket.has_ipv6:
        pytest.skip("no IPv6 on this machine")
    [bound] = bind_sockets(host, 0)
    with bound:
        assert shown_address(bound) == f"{shown}:{bound.getsockname()[1]}"
