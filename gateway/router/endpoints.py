"""The router's endpoints: registration, nodes, statistics; and its OpenAPI document.

Forwarded requests are in the nodes' documents."""

import hmac
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import Response

from gateway.router.messages import (
    Latency,
    LeftResponse,
    ModelStats,
    NodeInfo,
    NodeRequest,
    NodesResponse,
    StatsResponse,
)
from gateway.router.nodes import VERIFIER, Node
from gateway.router.passing import Passing
from specpair.http_service.keys.gate import Gate
from specpair.http_service.observability.health import Condition, state_operations
from specpair.http_service.openapi import document as built
from specpair.http_service.openapi.operation import ALWAYS, BODY, Json, Operation, parameter
from specpair.http_service.replies.json_replies import JsonReply
from specpair.http_service.request_bodies import read_body
from specpair.numbers import quantile
from specpair.protocol import errors, messages
from specpair.protocol.errors import Forbidden, NotFound, SpecPairError, Unauthorized
from specpair.protocol.service_responses import HealthResponse, ServiceStatus

_FIRST: tuple[ServiceStatus, ...] = ("ready", "overloaded", "loading")  # a state that one node has is that of all
_MOST_BYTES, _PATIENCE = 16 * 1024, 10.0  # of the body of a registration


class RouterEndpoints:
    """The endpoints as methods."""

    def __init__(self, gate: Gate, passing: Passing, policy: str, register_key: SecretStr | None) -> None:
        """`policy`: its name.
        `register_key`: with which nodes register; None: none can.
        """
        self._gate, self._policy, self._register_key = gate, policy, register_key
        self._forwarding, self._draining, self._fleet = passing.forwarding, passing.draining, passing.forwarding.fleet

    async def register_node(self, request: Request) -> Response:
        """Take a node in, or note that it is still there. Needs the registration key, whose holder receives texts
        and callers' keys."""
        self._check_register_key(request)
        body = await read_body(request, _MOST_BYTES, _PATIENCE)
        asked = messages.parse(NodeRequest, body)
        node = self._fleet.join(asked.spec, asked.ttl)
        return JsonReply(self._info(node, None).body())

    async def remove_node(self, request: Request) -> Response:
        """Take a node out (`?url=`). Its texts go on elsewhere. Needs the registration key."""
        self._check_register_key(request)
        url = request.query_params.get("url", "")
        if not self._fleet.leave(url, "it was taken out"):
            raise NotFound(f"no node {url[:200]!r}: /nodes lists them")
        return JsonReply(LeftResponse(url=url, left=True).body())

    async def get_nodes(self, request: Request) -> Response:
        """The nodes: state, load, latency, tokens, price.

        If the request names sessions, also how many of them each node has, as far as this router remembers.
        `/models/NAME/nodes` shows the nodes of one model.
        """
        self._gate.admit(request)
        return self.nodes_reply(request, None)

    async def get_stats(self, request: Request) -> Response:
        """Statistics since the start, by model."""
        self._gate.admit(request)
        models = [
            _stats(model, [each for each in self._fleet.nodes if each.model == model]) for model in self._fleet.models
        ]
        told = StatsResponse(
            policy=self._policy,
            sessions=len(self._forwarding.sessions),
            repeated=self._forwarding.repeated,
            models=models,
        )
        return JsonReply(told.body())

    def condition(self) -> Condition:
        """The router's state, for `/ready`."""
        return self._condition(self._fleet.nodes)

    def health(self, model: str | None = None) -> tuple[HealthResponse, dict[str, str]]:
        """The state of the nodes of a model, or of all, in the form of a verifier's health."""
        nodes = [each for each in self._fleet.nodes if model in (None, each.model)]
        found = self._condition(nodes)
        there = [each for each in nodes if each.reachable]
        if found.status not in ("ready", "overloaded"):
            why = None
            if found.status == "verifier_away":
                try:
                    self._fleet.having(model, openai=True)
                except SpecPairError as error:
                    why = str(error)
            progress = max((each.progress for each in nodes if each.progress is not None), default=None)
            return HealthResponse(status=found.status, reason=why, progress=progress), found.headers
        models = {each.model for each in there}
        identities = [each.identity for each in there if each.kind == VERIFIER]
        told = HealthResponse(
            status="ready",
            overloaded=found.status == "overloaded",
            model=models.pop() if len(models) == 1 else None,
            identity=min(identities) if identities and len({*identities}) == 1 else None,
            sessions=sum(each.health.sessions or 0 for each in there if each.health is not None),
            texts=sum(each.texts for each in there),
            waiting=sum(each.waiting for each in there),
        )
        return told, {}

    def nodes_reply(self, request: Request, model: str | None) -> Response:
        """The reply to `/nodes` for one model, or for all."""
        sessions = request.query_params.getlist("session")
        at = Counter(self._forwarding.sessions.node(each) for each in {*sessions})
        nodes = [each for each in self._fleet.nodes if model in (None, each.model or each.spec.model)]
        shown = [self._info(each, at[each] if sessions else None) for each in nodes]
        return JsonReply(NodesResponse(nodes=shown).body())

    def health_reply(self, request: Request, model: str | None) -> Response:
        """The reply to `/health` for one model."""
        told, headers = self.health(model)
        return JsonReply(told.body(), 200 if told.status == "ready" else 503, headers)

    def _condition(self, nodes: Sequence[Node]) -> Condition:
        if self._draining.begun:
            return Condition("draining", 1)
        states = {each.status for each in nodes}
        otherwise: ServiceStatus = "draining" if states == {"draining"} else "verifier_away"
        found = next((each for each in _FIRST if each in states), otherwise)
        return Condition(found) if found == "ready" else Condition(found, 1)

    def _check_register_key(self, request: Request) -> None:
        if self._register_key is None:
            raise Forbidden(
                "nodes cannot register here: start the router with --register-key, or name them in its list"
            )
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        sent = given.strip() if scheme.lower() == "bearer" else ""
        if not sent:
            raise Unauthorized("the router wants its key for registration: send the header Authorization: Bearer <key>")
        # In a time that does not depend on where they differ.
        if not hmac.compare_digest(sent.encode(), self._register_key.get_secret_value().encode()):
            raise Unauthorized("the key that was sent is not the router's key for registration: check it")

    def _info(self, node: Node, named_sessions: int | None) -> NodeInfo:
        pace, price, told = node.pace, node.spec.hourly_price, node.health
        expires, now = node.expires, self._fleet.clock()
        return NodeInfo(
            url=node.name,
            status=node.status,
            why=node.why or None,
            kind=node.kind if node.model else None,
            model=node.model or None,
            identity=node.identity or None,
            vocabulary_size=None if node.info is None else node.info.vocabulary.size,
            slots=None if node.info is None else node.info.rows,
            weight=node.weight,
            hourly_price=price,
            leaves_in=None if expires is None else round(max(0.0, expires - now), 1),
            sessions=None if told is None else told.sessions,
            texts=node.texts,
            waiting=node.waiting,
            in_flight=node.in_flight,
            requests=node.requests,
            failures=node.failures,
            latency_ms=_latency(node.latencies),
            round_trip_ms=round(1e3 * node.link, 3) if node.links else None,
            looked_ago=None if node.looked_at is None else round(now - node.looked_at, 3),
            named_sessions=named_sessions,
            generated_tokens=pace.tokens,
            pass_seconds=None if told is None else told.pass_seconds,
            tokens_per_second=_rounded(pace.tokens_per_second),
            price_per_million_tokens=None if price is None else _rounded(pace.price(price)),
        )


def _stats(model: str, nodes: list[Node]) -> ModelStats:
    tokens = sum(each.pace.tokens for each in nodes)
    paces = [each.pace.tokens_per_second for each in nodes]
    priced = [each for each in nodes if each.spec.hourly_price is not None]
    paid = sum(each.pace.cost(each.spec.hourly_price or 0.0) for each in priced)
    of_priced = sum(each.pace.tokens for each in priced)
    return ModelStats(
        model=model,
        nodes=len(nodes),
        ready=sum(each.status == "ready" for each in nodes),
        texts=sum(each.texts for each in nodes),
        requests=sum(each.requests for each in nodes),
        failures=sum(each.failures for each in nodes),
        latency_ms=_latency([seconds for each in nodes for seconds in each.latencies]),
        generated_tokens=tokens,
        tokens_per_second=_rounded(sum(filter(None, paces))) if any(paces) else None,
        price_per_million_tokens=_rounded(1e6 * paid / of_priced) if of_priced else None,
    )


def _latency(seconds: Iterable[float]) -> Latency | None:
    taken = [*seconds]
    if not taken:
        return None
    return Latency(p50=round(1e3 * quantile(taken, 0.5), 3), p95=round(1e3 * quantile(taken, 0.95), 3))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


TITLE = "specpair router"
_DESCRIPTION = """Stands in front of several verifiers, and of drafters that serve.

These are its own endpoints. All other paths are passed on to a node, `/models/NAME` before them chooses among several
models. If no node can serve a request, the error is `bad_gateway` (502), `model_loading` or `shutting_down` (503)."""

STATE = tuple(each for each in state_operations(ALWAYS) if each.path != "/usage")  # that is joined from the nodes
_TEXT: Json = {"type": "string"}
_URL = parameter("url", "query", "The node's URL, as /nodes lists it.", _TEXT) | {"required": True}
_SESSION = parameter(
    "session",
    "query",
    "The id of a session whose node is wanted. May be given several times.",
    {"type": "array", "items": _TEXT},
)
NODES = (
    Operation("GET", "/nodes", RouterEndpoints.get_nodes, "nodes", NodesResponse, ALWAYS, parameters=(_SESSION,)),
    Operation(
        "POST",
        "/nodes",
        RouterEndpoints.register_node,
        "nodes",
        NodeInfo,
        (*ALWAYS, *BODY),
        request=NodeRequest,
        examples={"a node reports": {"url": "http://10.0.0.1:8000", "hourly_price": 1.5, "ttl": 15.0}},
    ),
    Operation(
        "DELETE",
        "/nodes",
        RouterEndpoints.remove_node,
        "nodes",
        LeftResponse,
        (*ALWAYS, errors.NotFound),
        parameters=(_URL,),
    ),
    Operation("GET", "/stats", RouterEndpoints.get_stats, "nodes", StatsResponse, ALWAYS),
)
# Paths of nodes that are counted apart.
PASSED = (
    *("/prefill", "/verify", "/verify/batch", "/generate", "/model", "/vocabulary", "/tokenize", "/usage"),
    *("/sessions", "/sessions/{session_id}", "/sessions/{session_id}/stream"),
    *("/v1/models", "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"),
    *("/v1/{path:path}", "/models/{path:path}"),
)
SERVICE = built.DescribedService(
    title=TITLE,
    description=_DESCRIPTION,
    key="A key that the router serves. Not needed if it has none.",
    operations=(*NODES, *STATE),
)


@cache
def document(keyed: bool = False) -> Json:
    """The document of a router with or without an API key. Cached: do not change the result."""
    return built.document(SERVICE, keyed)
