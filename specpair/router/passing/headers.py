"""The headers of a request as a node gets them, and of a reply as the client gets them."""

from collections.abc import Iterable

from specpair.http_service.observability.request_context import HEADER as REQUEST_ID
from specpair.http_service.observability.request_context import current
from specpair.router.upstream.connection import Headers

SESSION = b"x-session-id"
_FORWARDED_FOR = b"x-forwarded-for"
_OF_ONE_HOP = frozenset(  # RFC 9110, section 7.6.1; what the connections have of their own
    (b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
# Those that the connection to the node sets itself; and Origin, which this service has checked: a node would compare it
# with its own name.
_REPLACED = _OF_ONE_HOP | {b"host", b"content-length", b"expect", b"origin", REQUEST_ID, _FORWARDED_FOR}
_KEYS = frozenset((b"authorization", b"x-api-key"))
_OF_THIS_SERVICE = _OF_ONE_HOP | {b"date", b"server", REQUEST_ID}  # uvicorn and `ObservedRequests` set their own


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


def to_client(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers that the client gets."""
    dropped = _without_hops(headers, _OF_THIS_SERVICE)
    return [each for each in headers if each[0] not in dropped]


def value_of(headers: Headers, name: bytes) -> str:
    """The value of the first header of a name; empty: there is none."""
    return next((value.decode("latin-1") for each, value in headers if each == name), "")


def _without_hops(headers: Headers, dropped: frozenset[bytes]) -> frozenset[bytes]:
    """`dropped`, and the headers that Connection names."""
    named: Iterable[bytes] = (value for name, value in headers if name == b"connection")
    further = {part.strip().lower() for value in named for part in value.split(b",")}
    return dropped | further if further else dropped
