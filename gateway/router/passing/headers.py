"""The headers of a request as a node gets them, and of a reply as the client gets them."""

from collections.abc import Iterable

from gateway.router.upstream.connection import Headers
from specpair.http_service.observability.logs import HEADER as REQUEST_ID
from specpair.http_service.observability.logs import current
from specpair.protocol.http_reply import ReplyHead

SESSION = b"x-session-id"
_FORWARDED_FOR = b"x-forwarded-for"
_POLICY = b"content-security-policy"
_OF_ONE_HOP = frozenset(  # RFC 9110, section 7.6.1; what the connections have of their own
    (b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
# Those that the connection to the node sets itself; and Origin, which this service has checked: a node would compare it
# with its own name.
_REPLACED = _OF_ONE_HOP | {b"host", b"content-length", b"expect", b"origin", REQUEST_ID, _FORWARDED_FOR}
_KEYS = frozenset((b"authorization", b"x-api-key"))
# The headers that services reply with. All else is dropped: cookies and what a browser does with all pages of an origin
# (`Set-Cookie`, `Clear-Site-Data`, `Strict-Transport-Security`, `Alt-Svc`) are of the router.
_FOR_CLIENTS = frozenset(
    (
        *(b"content-type", b"content-length", b"content-encoding", b"vary", b"cache-control", b"etag"),
        *(b"retry-after", b"allow", b"accept-encoding", b"www-authenticate", SESSION, b"x-accel-buffering"),
        *(_POLICY, b"referrer-policy"),
    )
)


def to_node(headers: Headers, client: str | None, key: str | None) -> list[tuple[bytes, bytes]]:
    """The headers that a node gets.

    `client`: the other end of the connection; None on a UNIX socket.
    `key`: the nodes' own, in place of the caller's; None: the caller's is passed on.
    """
    dropped = _without_hops(headers, _REPLACED if key is None else _REPLACED | _KEYS)
    kept = [each for each in headers if each[0] not in dropped]
    if key is not None:
        kept.append((b"authorization", b"Bearer " + key.encode()))
    hops = [value for name, value in headers if name == _FORWARDED_FOR]
    if client is not None:
        hops.append(client.encode())
    if hops:
        kept.append((_FORWARDED_FOR, b", ".join(hops)))
    if (context := current()) is not None:
        kept.append((REQUEST_ID, context.request_id.encode()))
    return kept


def to_client(head: ReplyHead) -> list[tuple[bytes, bytes]]:
    """The headers that the client gets. What is no page of a node, no browser shows as one."""
    dropped = _without_hops(head.headers, frozenset((b"content-length",) if head.status == 204 else ()))
    kept = [each for each in head.headers if each[0] in _FOR_CLIENTS and each[0] not in dropped]
    kept.append((b"x-content-type-options", b"nosniff"))
    if not any(name == _POLICY for name, _ in kept):
        kept.append((_POLICY, b"default-src 'none'; frame-ancestors 'none'"))
    return kept


def value_of(headers: Headers, name: bytes) -> str:
    """The value of the first header of a name; empty: there is none."""
    return next((value.decode("latin-1") for each, value in headers if each == name), "")


def _without_hops(headers: Headers, dropped: frozenset[bytes]) -> frozenset[bytes]:
    """`dropped`, and the headers that Connection names."""
    named: Iterable[bytes] = (value for name, value in headers if name == b"connection")
    further = {part.strip().lower() for value in named for part in value.split(b",")}
    return dropped | further if further else dropped
