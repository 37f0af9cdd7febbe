"""Lists that each node has a part of: sessions, models, usage. All nodes are asked, and their parts joined."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response

from specpair.http_service.replies.json_reply import JsonReply
from specpair.protocol.errors import BadGateway, NotFound, from_body
from specpair.router.nodes.node import DRAFTER, VERIFIER, Node
from specpair.router.passing.headers import to_node
from specpair.router.passing.passing import Forwarding
from specpair.router.upstream.connection import Headers, NodeLost

Part = dict[str, Any]


async def sessions(forwarding: Forwarding, request: Request) -> Response:
    """The caller's sessions on all verifiers. Where all callers have the router's key, ids are left out: an id gives
    access."""
    parts = await _parts(forwarding, request, b"/sessions", _verifiers(forwarding))
    found = [each for part in parts for each in part["sessions"]]
    if forwarding.node_key is not None:
        found = [{name: value for name, value in each.items() if name != "session_id"} for each in found]
    return JsonReply(to_json({"sessions": found}))


async def models(forwarding: Forwarding, request: Request) -> Response:
    """The models that are served, each as one of its nodes describes it."""
    one_of_each = {each.model: each for each in reversed(_reachable(forwarding))}
    parts = await _parts(forwarding, request, b"/v1/models", [*reversed(one_of_each.values())])
    return JsonReply(to_json({**parts[0], "data": [each for part in parts for each in part["data"]]}))


async def usage(forwarding: Forwarding, request: Request) -> Response:
    """What all nodes have done for the caller's key. Raises NotFound where all callers have the router's key."""
    if forwarding.node_key is not None:
        raise NotFound("the nodes see the router's key, not yours, so they count no usage of yours")
    # A drafter's tokens are those of its verifier, which counts them, too, if it is a node.
    asked = _verifiers(forwarding) or [each for each in _reachable(forwarding) if each.kind == DRAFTER]
    total: dict[str | None, Part] = {}
    for part in await _parts(forwarding, request, b"/usage", asked):
        for each in part["keys"]:
            known = total.setdefault(each["key"], {"key": each["key"]})
            for name, value in each.items():
                if name != "key":
                    known[name] = known.get(name, 0) + value
    return JsonReply(to_json({"keys": [*total.values()]}))


JOINED: dict[str, Callable[[Forwarding, Request], Any]] = {
    "/sessions": sessions,
    "/v1/models": models,
    "/usage": usage,
}  # by path, for GET


async def _parts(forwarding: Forwarding, request: Request, target: bytes, nodes: Iterable[Node]) -> list[Part]:
    """The replies of all nodes that are there. Raises BadGateway if there is none, and what one refuses it with."""
    scope = request.scope
    headers = to_node(scope["headers"], (scope.get("client") or (None,))[0], forwarding.node_key)
    asked = [_part(forwarding, node, target, headers) for node in nodes]
    found = [each for each in await asyncio.gather(*asked) if each is not None]
    if not found:
        raise BadGateway("no node is ready: ask again when one is; /nodes shows them")
    return found


async def _part(forwarding: Forwarding, node: Node, target: bytes, headers: Headers) -> Part | None:
    """The reply of one node; None: it is lost."""
    try:
        async with forwarding.exchange(node, b"GET", target, headers, b"") as (head, connection):
            content = await connection.read_all()
    except NodeLost:
        return None
    if head.status != 200:
        raise from_body(head.status, content)
    part: Part = from_json(content)
    return part


def _reachable(forwarding: Forwarding) -> list[Node]:
    return [each for each in forwarding.fleet.nodes if each.reachable]


def _verifiers(forwarding: Forwarding) -> list[Node]:
    return [each for each in _reachable(forwarding) if each.kind == VERIFIER]
