"""Sends requests to nodes: to the one that has the session, to the one that the policy chooses, or to the next."""

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from starlette.requests import Request

from gateway.balancing import NewText, Policy, ordered
from gateway.router.connections import Headers, NodeConnection, NodeLost
from gateway.router.nodes import Fleet, Node
from gateway.router.requests import BATCH, SESSION, RoutedRequest, prefixes, routing_fields, sessions_of, value_of
from gateway.router.watch import Watch
from specpair.http_service.request_bodies import LONG, encoding_of, received_body, unpacked
from specpair.protocol.errors import BadGateway, ImplicitSessionRefused, InvalidRequest, ShuttingDown, from_body
from specpair.protocol.http_reply import ReplyHead


class SessionNodes:
    """The nodes of the latest sessions. A forgotten session is found by asking the nodes in its order."""

    def __init__(self, most: int) -> None:
        """`most`: sessions that are remembered."""
        self._most = most
        self._nodes: OrderedDict[str, Node] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, session_id: str) -> Node | None:
        """The node that has a session; None: it is not known."""
        if session_id in self._nodes:
            self._nodes.move_to_end(session_id)
        return self._nodes.get(session_id)

    def note(self, session_id: str, node: Node) -> None:
        """Note that a node has a session."""
        self._nodes[session_id] = node
        self._nodes.move_to_end(session_id)
        if len(self._nodes) > self._most:
            self._nodes.popitem(last=False)

    def forget(self, session_id: str) -> None:
        """Forget a session that no node has."""
        self._nodes.pop(session_id, None)


_log = logging.getLogger("gateway.router")
# By the code of a node's error: another node may serve the request. The nodes that have these errors do not know the
# session, or the earlier answer; those that have the next ones do nothing any more; and the last are for new texts.
_NOT_THERE = ("unknown_session", "response_not_found")
_AWAY = ("shutting_down", "model_loading", "model_failed", "verifier_away", "model_mismatch")
_FULL = ("overloaded",)
_READ_STATUSES = (404, 503)  # of the replies whose error is read
_MOST_OF_AN_ERROR = 1024 * 1024  # bytes


def stopped() -> ShuttingDown:
    """The error of requests that the router's end aborts."""
    return ShuttingDown("the router is being stopped: ask again when it is back")


class NodeReply(NamedTuple):
    """The client's reply: its body is there, or is still to be read from the connection to a node."""

    head: ReplyHead
    body: bytes | None
    connection: NodeConnection | None = None


class Forwarding:
    """Sends requests to nodes. Used in the event loop."""

    def __init__(
        self,
        fleet: Fleet,
        watch: Watch,
        sessions: SessionNodes,
        policy: Policy,
        node_key: str | None,
        *,
        body_limit: int,
        body_patience: float,
        dispatched: Callable[[Node, float], None] = lambda node, seconds: None,
    ) -> None:
        """`node_key`: the nodes' own, in place of the callers'; None: theirs are passed on.
        `body_limit`, `body_patience`: bytes and seconds, as for `received_body`.
        `dispatched`: called with a node that replies, and the seconds after which it was asked.
        """
        self.fleet, self._watch, self.sessions, self._policy = fleet, watch, sessions, policy
        self.node_key, self._limit, self._patience = node_key, body_limit, body_patience
        self._dispatched = dispatched
        self.repeated = 0  # requests that were sent to a further node
        self.stopping = False  # whether the router is being stopped

    async def body_of(self, request: Request) -> bytes:
        """The body of a request, as it was sent. Raises what `received_body` raises."""
        return await received_body(request, self._limit, self._patience)

    async def known(self, request: Request, what: RoutedRequest, body: bytes) -> RoutedRequest:
        """`what`, completed by the request's body.

        Raises ImplicitSessionRefused, InvalidRequest for a batch whose sessions lie on several nodes, and what
        `encoding_of` and `unpacked` raise.
        """
        needs_model = what.openai and what.model is None and len(self.fleet.models) > 1 and bool(body)
        needs_prompt = self._policy.reads_prompts and what.begins and bool(body)
        if not (what.needs_session or needs_model or needs_prompt):
            return what
        encoding = encoding_of(request)
        plain = await asyncio.to_thread(unpacked, body, encoding, self._limit) if encoding else body
        if what.path == BATCH:
            return what._replace(session=self._session_of(sessions_of(plain)))
        found = await asyncio.to_thread(routing_fields, plain) if len(plain) > LONG else routing_fields(plain)
        if what.path == "/verify" and not found.session_id and not what.session:
            raise ImplicitSessionRefused(
                "session_id is missing: behind a router it is not known which session is meant. Send the header "
                "X-Session-Id with each request of a session"
            )
        session = what.session or found.session_id or ""
        if needs_prompt:
            begins_with = await asyncio.to_thread(prefixes, plain) if len(plain) > LONG else prefixes(plain)
            if found.earlier:  # the prompt begins like that session's text, and only the rest of it is here
                begins_with = (f"session {found.earlier}",)
            what = what._replace(prefixes=begins_with + ((f"session {session}",) if session else ()))
        return what._replace(model=found.model if needs_model else what.model, session=session)

    def _session_of(self, batch: list[str]) -> str:
        """A session whose node can verify a batch; empty: the batch has none. Raises InvalidRequest."""
        there = {node: session for session in batch if (node := self.sessions.node(session)) is not None}
        if len(there) > 1:
            raise InvalidRequest(
                "items: their sessions lie on several nodes behind this router: send a batch for each node, or each "
                "item to /verify",
                param="items",
            )
        return next(iter(there.values()), "".join(batch[:1]))

    def candidates(self, what: RoutedRequest) -> Iterator[Node]:
        """The nodes to ask, one after the other.

        A session stays where it is known to be. A text that begins goes where the policy says, and then to the next
        nodes in the order of its id. A session that is not known here is looked for in that order: another router, or
        this one before it was started again, has chosen from it, too.

        Raises UnknownModel, and the errors of `Fleet.having`.
        """
        having = self.fleet.having(what.model, what.openai)
        first = self.sessions.node(what.session) if what.session else None
        if first in having:
            yield first  # nearly always all that is asked for
        key = what.session or secrets.token_hex(8)
        order = ordered(key, [each for each in having if each is not first])
        taking = self.fleet.taking(order) if what.begins else []
        if taking:
            chosen = self._policy.choose(taking, NewText(key, what.prefixes))
            yield chosen
            order = [each for each in (*taking, *order) if each is not chosen]
        yield from dict.fromkeys(order)

    @asynccontextmanager
    async def exchange(
        self, node: Node, method: bytes, target: bytes, headers: Headers, body: bytes, begins: bool = False
    ) -> AsyncIterator[tuple[ReplyHead, NodeConnection]]:
        """A context with a node's reply, whose body is still to be read. Notes the node's state.

        Raises NodeLost.
        """
        clock = self.fleet.clock
        began = clock()
        node.requests += 1
        node.in_flight += 1
        node.begun += begins
        node.beginning += begins
        try:
            async with self._watch.pool(node).exchange(method, target, headers, body) as (head, connection):
                if 300 <= head.status < 400 and head.status != 304:
                    raise NodeLost(f"it redirects (HTTP {head.status}), as no node does")
                node.answered(clock() - began)
                yield head, connection
        except NodeLost as error:
            _log.warning("the node %s was lost during a request: %s", node.name, error)
            self._watch.failed(node)
            raise
        finally:
            node.in_flight -= 1
            node.beginning -= begins

    @asynccontextmanager
    async def reply(
        self, what: RoutedRequest, method: bytes, target: bytes, headers: Headers, body: bytes
    ) -> AsyncIterator[tuple[Node | None, NodeReply]]:
        """A context with the reply of the first candidate that can serve a request, else the last one's.

        Raises BadGateway if none has replied, and what `candidates` raises.
        """
        last: tuple[Node | None, NodeReply] | None = None
        lost: list[str] = []
        came = self.fleet.clock()
        begins = what.begins and method == b"POST"
        for number, node in enumerate(self.candidates(what)):
            if self.stopping:
                raise stopped()
            if node not in self.fleet:
                continue
            self.repeated += number > 0
            begun = False
            asked_after = self.fleet.clock() - came
            try:
                async with self.exchange(node, method, target, headers, body, begins) as (head, connection):
                    reply = NodeReply(head, None, connection)
                    if head.status in _READ_STATUSES:
                        reply = NodeReply(head, await connection.read_all(_MOST_OF_AN_ERROR))
                        last = node, reply
                        if self._another_may(what, node, reply):
                            continue
                    begun = True
                    self._dispatched(node, asked_after)
                    yield node, reply
                    return
            except NodeLost as error:
                if begun:
                    raise
                lost.append(f"{node.name}: {error}")
        if last is None:
            raise BadGateway(f"no node has replied ({'; '.join(lost)}): ask again; /nodes shows their state")
        yield last

    def note(self, what: RoutedRequest, method: bytes, node: Node, head: ReplyHead) -> None:
        """Note which node has the session of a request, by its reply."""
        session = what.session or value_of(head.headers, SESSION)
        if not session or what.openai:
            return
        if method == b"DELETE" or head.status == 404:
            self.sessions.forget(session)
        elif head.status < 300:
            self.sessions.note(session, node)

    def _another_may(self, what: RoutedRequest, node: Node, reply: NodeReply) -> bool:
        """Whether another node may serve a request, which this one has refused."""
        assert reply.body is not None
        code = from_body(reply.head.status, reply.body).code
        if code in _AWAY:
            self._watch.look_soon(node)
        return code in _NOT_THERE or code in _AWAY or (what.begins and code in _FULL)
