"""Receives every request. The router's endpoints answer it, or one node does, or several nodes each return a part of a
list."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any
from urllib.parse import quote

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.anthropic_api.replies import error_form_of
from gateway.router.connections import Headers, NodeLost
from gateway.router.forwarding import Forwarding, stopped
from gateway.router.nodes import DRAFTER, VERIFIER, Node
from gateway.router.requests import SESSION, RoutedRequest, routed, to_client, to_node, value_of
from specpair.http_service.keys.gate import Gate
from specpair.http_service.replies.hang_up import HangUp
from specpair.http_service.replies.json_replies import Failures, JsonReply, NotedSend
from specpair.http_service.shutdown import Draining
from specpair.protocol.errors import BadGateway, NotFound, SpecPairError, from_body
from specpair.protocol.http_reply import ReplyHead

_log = logging.getLogger("gateway.router")
_END = b"\n\n"
_NAME = b"event: "


class WholeEvents:
    """Cuts a stream's bytes at the ends of events."""

    def __init__(self) -> None:
        self._held = bytearray()  # of an event that is not whole yet
        self.named = 0  # events with a name that were returned

    def take(self, piece: bytes, last: bool = False) -> bytes:
        """The bytes that may be sent now, up to the end of an event. `last`: all bytes, since no more come."""
        held, before = self._held, len(self._held)
        held += piece
        found = held.rfind(_END, max(0, before - 1))
        if found < 0 and not last:
            return b""
        end = len(held) if last else found + len(_END)
        whole = bytes(held[:end])
        del held[:end]
        self.named += whole.startswith(_NAME) + whole.count(b"\n" + _NAME)
        return whole


def _is_event_stream(head: ReplyHead) -> bool:
    """Whether a reply is a stream of events to which another can be appended."""
    names = {name for name, _ in head.headers}
    plain = not names & {b"content-length", b"content-encoding"}
    return plain and value_of(head.headers, b"content-type").startswith("text/event-stream")


class Passing:
    """The part of the application that passes requests on."""

    def __init__(self, forwarding: Forwarding, seconds: float) -> None:
        """`seconds`: the grace of requests under way after SIGTERM."""
        self.forwarding = forwarding
        self.in_flight = 0
        self.draining = Draining(seconds, lambda: inf if self.in_flight else 0.0)

    async def serve(self, request: Request, send: Send, what: RoutedRequest, body: bytes) -> None:
        """Pass a request on, and its reply back.

        Raises SpecPairError, and NodeLost in the middle of a reply that cannot tell an error: one that is no stream of
        events.
        """
        forwarding, scope = self.forwarding, request.scope
        method = scope["method"].encode()
        if what.begins and method == b"POST":
            self.draining.check_new_text()
        what = await forwarding.known(request, what, body)
        query = scope["query_string"]
        target = what.target + (b"?" + query if query else b"")
        headers = to_node(scope["headers"], (scope.get("client") or (None,))[0], forwarding.node_key)
        events: WholeEvents | None = None
        self.in_flight += 1
        try:
            async with forwarding.reply(what, method, target, headers, body) as (node, reply):
                head, connection = reply.head, reply.connection
                if node is not None:
                    forwarding.note(what, method, node, head)
                await send({"type": "http.response.start", "status": head.status, "headers": to_client(head)})
                if connection is None:
                    await send({"type": "http.response.body", "body": reply.body or b""})
                    return
                events, last = WholeEvents() if _is_event_stream(head) else None, False
                while not last:
                    piece, last = await connection.read()
                    if events is not None:
                        piece = events.take(piece, last)
                    if piece or last:
                        await send({"type": "http.response.body", "body": piece, "more_body": not last})
        except NodeLost as lost:
            if events is None:
                raise
            why = f"the node that wrote this was lost ({lost}): ask again, /nodes shows how the nodes are"
            error = stopped() if forwarding.stopping else BadGateway(why)
            event = error_form_of(what.path).last_event(error, events.named)
            await send({"type": "http.response.body", "body": event})
        finally:
            self.in_flight -= 1
            self.draining.changed()


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
    """The usage of the caller's key on all nodes. Raises NotFound where all callers have the router's key."""
    if forwarding.node_key is not None:
        raise NotFound("the nodes see the router's key, so they count no usage for your key")
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
    """The rows of the lists `name` of all nodes that are there. Raises BadGateway if there is none, and the error
    of a refusal."""
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
        if isinstance(rows, list) and all(isinstance(each, dict) for each in rows):
            return rows
    except (ValueError, KeyError, TypeError):
        pass
    _log.warning("the node %s is left out of %s: its reply has no list %r", node.name, target.decode(), name)
    return None


def _reachable(forwarding: Forwarding) -> list[Node]:
    return [each for each in forwarding.fleet.nodes if each.reachable]


def _verifiers(forwarding: Forwarding) -> list[Node]:
    return [each for each in _reachable(forwarding) if each.kind == VERIFIER]


OWN = frozenset(
    ("", "/health", "/live", "/ready", "/metrics", "/nodes", "/stats", "/docs", "/openapi.json")
)  # paths of the router itself; all others are passed on


class RouterEntrance:
    """Middleware: forwards requests, except those to the router itself, which another application serves."""

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        passing: Passing,
        failures: Failures,
        of_model: Mapping[str, Callable[[Request, str | None], Response]],
    ) -> None:
        """`of_model`: by path, replies about the nodes of one model."""
        self._app, self._gate, self._passing = app, gate, passing
        self._failures, self._of_model = failures, of_model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        written = scope.get("raw_path") or quote(scope["path"]).encode()
        target = written.partition(b"?")[0].removeprefix(scope.get("root_path", "").encode())
        what = routed(target, value_of(scope["headers"], SESSION), self._passing.forwarding.fleet.has_model)
        if (what.path in OWN or what.path.startswith("/docs/")) and what.model is None:
            await self._app(scope, receive, send)
            return
        noted = NotedSend(send)
        try:
            request = Request(scope, receive)
            self._gate.admit(request)
            body = await self._passing.forwarding.body_of(request)
            async with HangUp(receive):
                await self._serve(request, noted, what, body)
        except NodeLost:
            pass  # in the middle of a reply: the server closes the connection, since the reply is not complete
        except (SpecPairError, asyncio.CancelledError) as raised:
            if isinstance(raised, asyncio.CancelledError) and not self._passing.forwarding.stopping:
                raise
            if not noted.begun:
                error = raised if isinstance(raised, SpecPairError) else stopped()
                at = Request({**scope, "path": what.path})
                await (await self._failures.failed(at, error))(scope, receive, send)

    async def _serve(self, request: Request, send: Send, what: RoutedRequest, body: bytes) -> None:
        forwarding, method = self._passing.forwarding, request.method
        reply: Response
        if method == "GET" and what.path in self._of_model:
            reply = self._of_model[what.path](request, what.model)
        elif method == "GET" and what.model is None and what.path in JOINED:
            reply = await JOINED[what.path](forwarding, request)
        else:
            await self._passing.serve(request, send, what, body)
            return
        await reply(request.scope, request.receive, send)
