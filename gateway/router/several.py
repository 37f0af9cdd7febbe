"""Requests that several nodes answer together: a batch of their sessions, and lists that each has a part of."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response

from gateway.router.connections import Headers, NodeLost
from gateway.router.forwarding import Forwarding
from gateway.router.nodes import DRAFTER, VERIFIER, Node
from gateway.router.requests import RoutedRequest, to_node
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol.errors import BadGateway, InvalidRequest, NotFound, SpecPairError, UnknownSession, from_body

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


async def verify_batch(forwarding: Forwarding, request: Request, what: RoutedRequest, body: bytes) -> Response:
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


def _item(forwarding: Forwarding, what: RoutedRequest, given: Any) -> _Item:
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


_log = logging.getLogger("gateway.router")
Row = dict[str, Any]


async def sessions(forwarding: Forwarding, request: Request) -> Response:
    """The caller's sessions on all verifiers. Where all callers have the router's key, ids are left out: an id gives
    access."""
    found = await _rows(forwarding, request, b"/sessions", "sessions", _verifiers(forwarding))
    if forwarding.node_key is not None:
        found = [{name: value for name, value in each.items() if name != "session_id"} for each in found]
    return JsonReply(to_json({"sessions": found}))


async def models(forwarding: Forwarding, request: Request) -> Response:
    """The models that are served, each as one of its nodes describes it."""
    one_of_each = {each.model: each for each in reversed(_reachable(forwarding))}
    found = await _rows(forwarding, request, b"/v1/models", "data", [*reversed(one_of_each.values())])
    return JsonReply(to_json({"object": "list", "data": found}))


async def usage(forwarding: Forwarding, request: Request) -> Response:
    """What all nodes have done for the caller's key. Raises NotFound where all callers have the router's key."""
    if forwarding.node_key is not None:
        raise NotFound("the nodes see the router's key, not yours, so they count no usage of yours")
    # A drafter's tokens are those of its verifier, which counts them, too, if it is a node.
    asked = _verifiers(forwarding) or [each for each in _reachable(forwarding) if each.kind == DRAFTER]
    total: dict[Any, Row] = {}
    for each in await _rows(forwarding, request, b"/usage", "keys", asked):
        key = each["key"] if isinstance(each.get("key"), str) else None
        known = total.setdefault(key, {"key": key})
        for name, value in each.items():
            if name != "key" and isinstance(value, (int, float)):
                known[name] = known.get(name, 0) + value
    return JsonReply(to_json({"keys": [*total.values()]}))


JOINED: dict[str, Callable[[Forwarding, Request], Any]] = {
    "/sessions": sessions,
    "/v1/models": models,
    "/usage": usage,
}  # by path, for GET


async def _rows(forwarding: Forwarding, request: Request, target: bytes, name: str, nodes: Iterable[Node]) -> list[Row]:
    """The rows of the lists `name` of all nodes that are there. Raises BadGateway if there is none, and what one
    refuses it with."""
    scope = request.scope
    headers = to_node(scope["headers"], (scope.get("client") or (None,))[0], forwarding.node_key)
    asked = [_part(forwarding, node, target, name, headers) for node in nodes]
    found = [each for each in await asyncio.gather(*asked) if each is not None]
    if not found:
        raise BadGateway("no node is ready: ask again when one is; /nodes shows them")
    return [row for part in found for row in part]


async def _part(forwarding: Forwarding, node: Node, target: bytes, name: str, headers: Headers) -> list[Row] | None:
    """The list of one node; None: it is lost, or replies with something else."""
    try:
        async with forwarding.exchange(node, b"GET", target, headers, b"") as (head, connection):
            content = await connection.read_all()
    except NodeLost:
        return None
    if head.status != 200:
        raise from_body(head.status, content)
    try:
        rows = from_json(content)[name]
    except (ValueError, KeyError, TypeError):
        rows = None
    if isinstance(rows, list) and all(isinstance(each, dict) for each in rows):
        return rows
    _log.warning("the node %s is left out of %s: its reply has no list %r", node.name, target.decode(), name)
    return None


def _reachable(forwarding: Forwarding) -> list[Node]:
    return [each for each in forwarding.fleet.nodes if each.reachable]


def _verifiers(forwarding: Forwarding) -> list[Node]:
    return [each for each in _reachable(forwarding) if each.kind == VERIFIER]
