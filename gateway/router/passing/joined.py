"""Lists that each node has a part of: sessions, models, usage. All nodes are asked, and their parts joined."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response

from gateway.router.nodes.node import DRAFTER, VERIFIER, Node
from gateway.router.passing.headers import to_node
from gateway.router.passing.passing import Forwarding
from gateway.router.upstream.connection import Headers, NodeLost
from specpair.http_service.replies.json_replies import JsonReply
from specpair.protocol.errors import BadGateway, NotFound, from_body

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
