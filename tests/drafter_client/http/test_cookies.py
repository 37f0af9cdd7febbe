"""Cookies by which a load balancer keeps a session at one verifier."""

from contextlib import closing

import httpx
import pytest

from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.cookies import SessionCookies
from specpair.protocol.errors import UnknownSession
from specpair.speculation.draft import Draft

URL = "http://balancer"


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        (["a=1; Path=/; HttpOnly"], b"a=1"),
        (["a=1", "b=2", "a=3=="], b"b=2; a=3=="),
        (["a=1", "a=; Max-Age=0"], None),
        (["a=1", "nonsense", "=x", f"b={'x' * 5000}"], b"a=1"),
        ([f"c{number}=" for number in range(12)], b"; ".join(b"c%d=" % number for number in range(8))),
        ([], None),
    ],
)
def test_what_is_sent_back(said: list[str], sent: bytes | None) -> None:
    cookies = SessionCookies()
    cookies.keep(URL, "s", said)
    assert cookies.header(URL, "s") == ([] if sent is None else [(b"Cookie", sent)])
    assert cookies.header(URL, "another") == cookies.header("http://other", "s") == []
    cookies.forget(URL, "s")
    assert cookies.header(URL, "s") == []


def test_the_oldest_session_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drafter_client.http.cookies.MOST_SESSIONS", 2)
    cookies = SessionCookies()
    for session in ("a", "b", "a", "c"):
        cookies.keep(URL, session, ["x=1"])
    assert [bool(cookies.header(URL, session)) for session in "abc"] == [True, False, True]


def test_all_requests_of_a_session_bear_its_cookies() -> None:
    """Also those of its other connections. A balancer may name another verifier later."""
    asked: list[tuple[str, str | None, str | None]] = []
    nodes = iter(["one", "two", "two", "two"])

    def balancer(request: httpx.Request) -> httpx.Response:
        headers = request.headers
        asked.append((f"{request.method} {request.url.path}", headers.get("cookie"), headers.get("x-session-affinity")))
        refusal = {"error": {"code": "unknown_session", "message": "it is not here"}}
        return httpx.Response(404, json=refusal, headers=[("Set-Cookie", f"node={next(nodes)}; HttpOnly")])

    text = TextSession([1, 2])
    with closing(VerifierClient(URL, transport=httpx.MockTransport(balancer))) as client:
        with pytest.raises(UnknownSession):
            client.prefill(text, {})
        with closing(client.another()) as other:
            with pytest.raises(UnknownSession):
                other.verify(text.session_id, Draft(2))
            with pytest.raises(UnknownSession):
                [*other.stream(text.session_id, 2)]
        client.release(text.session_id)
    assert asked == [
        ("POST /prefill", None, "cookie"),
        ("POST /verify", "node=one", "cookie"),
        (f"GET /sessions/{text.session_id}/stream", "node=two", "cookie"),
        (f"DELETE /sessions/{text.session_id}", "node=two", "cookie"),
    ]
