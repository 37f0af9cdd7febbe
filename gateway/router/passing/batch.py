"""`/verify/batch` over several nodes: each gets the items of its sessions, and the results stand in order."""

import asyncio
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response

from gateway.router.nodes.node import Node
from gateway.router.passing.asked import Asked
from gateway.router.passing.headers import to_node
from gateway.router.passing.passing import Forwarding
from gateway.router.upstream.connection import Headers, NodeLost
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol.errors import BadGateway, InvalidRequest, SpecPairError, UnknownSession, from_body

_TARGET = b"/verify/batch"
_UNKNOWN = UnknownSession.code


class _Item:
    """One item: where it can go, and its result so far."""

    def __init__(self, given: Any, session: str, nodes: Iterator[Node]) -> None:
        self.given, self.session, self._nodes = given, session, nodes
        self.node = next(nodes, None)
        self.result: Any = None  # None: none yet

    def move_on(self, result: Any) -> None:
        """Note the result, and go to the next node."""
        self.result, self.node = result, next(self._nodes, None)


async def verify_batch(forwarding: Forwarding, request: Request, what: Asked, body: bytes) -> Response:
    """Verify for several sessions at once. Raises InvalidRequest for a body without items, and SpecPairError where a
    node refuses all of its items for one reason, such as a key."""
    plain = await forwarding.plain(request, body)
    items = [_item(forwarding, what, given) for given in _items(plain)]
    scope = request.scope
    kept = [each for each in scope["headers"] if each[0] != b"content-encoding"]
    headers = to_node(kept, (scope.get("client") or (None,))[0], forwarding.node_key)
    while left := [each for each in items if each.node is not None]:
        nodes = dict.fromkeys(each.node for each in left)
        asking = (
            _ask(forwarding, node, [each for each in left if each.node is node], headers) for node in nodes if node
        )
        await asyncio.gather(*asking)
    return JsonReply(to_json({"results": [each.result for each in items]}))


def _items(body: bytes) -> list[Any]:
    try:
        items = from_json(body)["items"]
    except (ValueError, KeyError, TypeError):
        items = None
    if not isinstance(items, list) or not items:
        raise InvalidRequest("items: a list of verify requests is needed", param="items")
    return items


def _item(forwarding: Forwarding, what: Asked, given: Any) -> _Item:
    session = given.get("session_id") if isinstance(given, dict) else None
    session = session if isinstance(session, str) else ""
    return _Item(given, session, forwarding.candidates(what._replace(session=session)))


async def _ask(forwarding: Forwarding, node: Node, items: list[_Item], headers: Headers) -> None:
    """Have a node judge the items of its sessions. Items that another node may have move on."""
    sent = to_json({"items": [each.given for each in items]})
    try:
        async with forwarding.exchange(node, b"POST", _TARGET, headers, sent) as (head, connection):
            content = await connection.read_all()
    except NodeLost as error:
        lost = BadGateway(f"{node.name}: {error}: ask again, /nodes shows how the nodes are")
        for each in items:
            each.move_on(each.result or lost.body())
        return
    if head.status != 200:
        refusal = from_body(head.status, content)
        if head.status not in (404, 503):  # it is the request's fault, as a whole
            raise refusal
        results: list[Any] = [refusal.body()] * len(items)
    else:
        results = _results(node, content, len(items))
    for each, result in zip(items, results, strict=True):
        code = result["error"]["code"] if "error" in result else None
        if code is None or (code != _UNKNOWN and head.status == 200):
            each.result, each.node = result, None
            if code is None:
                forwarding.sessions.note(each.session, node)
        else:
            each.move_on(result)


def _results(node: Node, content: bytes, count: int) -> list[Any]:
    try:
        results = from_json(content)["results"]
        if len(results) == count and all(
            "error" not in each or isinstance(each["error"]["code"], str) for each in results
        ):
            return list(results)
    except (ValueError, KeyError, TypeError):
        pass
    error: SpecPairError = BadGateway(f"{node.name} has replied with other results than those of {count} items")
    return [error.body()] * count
