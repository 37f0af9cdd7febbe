"""Probes each node periodically, and removes nodes that have not reported for too long."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial

from pydantic import ValidationError

from gateway.router.connections import Headers, NodeLost, Pool
from gateway.router.nodes import Fleet, Node
from specpair.protocol.errors import from_body
from specpair.protocol.service_responses import HealthResponse, ModelInfo

PATIENCE = 2.0  # seconds for a reply to a look, if nothing else comes from the node either
_FIRST_LOOKS = 1.0  # seconds for which the start waits for the looks at the nodes of the list
_MOST_OF_A_LOOK = 1024 * 1024  # bytes
_LOST_AFTER = 3  # looks in a row that got no reply, after which requests are given up that no other node can take
_ACCESS = {"unauthorized": "it does not take the router's key: give its key with --node-key"}
_NO_ACCESS = "it has no key, and serves its own network only: give it a key, and the router the same with --node-key"


class NoReply(NodeLost):
    """A probe got no reply in time."""


class Watch:
    """Watches the nodes of a fleet, with one task each. Used in the event loop."""

    def __init__(self, fleet: Fleet, key: str | None, every: float) -> None:
        """`key`: the nodes' key; None: no key.
        `every`: seconds between probes.
        """
        self._fleet, self._every = fleet, every
        self._headers: Headers = [] if key is None else [(b"authorization", b"Bearer " + key.encode())]
        self._watched: dict[Node, tuple[Pool, asyncio.Task[None], asyncio.Event]] = {}
        self._expiry: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Watch the nodes that are there, and those that join.

        The first probes are noted in the order of the nodes. If several serve different models under one name, the
        first node determines the model.
        """
        nodes = self._fleet.nodes
        for note in await asyncio.gather(*map(self._first_probe, nodes)):
            note()
        self._fleet.on_join, self._fleet.on_leave = self._join, self._leave
        for node in self._fleet.nodes:
            self._join(node)
        self._expiry = asyncio.create_task(self._expire())

    async def stop(self) -> None:
        """Watch no longer, and break all connections."""
        tasks = [task for _, task, _ in self._watched.values()] + ([] if self._expiry is None else [self._expiry])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.abort("the router is being stopped")
        self._watched.clear()
        await asyncio.sleep(0)  # the event loop closes the connections before it is closed itself

    def abort(self, why: str) -> None:
        """Break all connections."""
        for pool, _, _ in self._watched.values():
            pool.abort(why)

    def pool(self, node: Node) -> Pool:
        """The connections to a node. Raises NodeLost if it has left."""
        if node not in self._watched:
            raise NodeLost("it has left")
        return self._watched[node][0]

    def failed(self, node: Node) -> None:
        """Note that a node has not replied to a request, and probe it now."""
        node.failed(self._fleet.clock())
        self.look_soon(node)

    def look_soon(self, node: Node) -> None:
        """Probe a node now, because one of its replies says that it has changed."""
        if node in self._watched:
            self._watched[node][2].set()

    def _join(self, node: Node) -> None:
        due = asyncio.Event()
        pool = Pool(node.name, self._fleet.clock)
        # In a context of its own: the logs of its looks would name the request by which the node has registered.
        task = asyncio.create_task(self._watch(node, pool, due), context=Context())
        self._watched[node] = pool, task, due

    def _leave(self, node: Node) -> None:
        """Probe it no longer. Its requests go on."""
        if node in self._watched:
            pool, task, _ = self._watched.pop(node)
            task.cancel()
            pool.close()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            self._fleet.expire()

    async def _watch(self, node: Node, pool: Pool, due: asyncio.Event) -> None:
        lost = 0
        while True:
            due.clear()
            try:
                (await self._probe(node, pool))()
                lost = 0
            except NodeLost as error:
                lost += 1
                heard = pool.heard_within(PATIENCE)
                if not (heard and isinstance(error, NoReply)):  # else it is there, and busy
                    self._fleet.away(node, f"nothing answers: {error}")
                if not heard and (lost >= _LOST_AFTER or self._fleet.has_another(node)):
                    pool.abort("the node does not answer")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await due.wait()

    async def _first_probe(self, node: Node) -> Callable[[], object]:
        """Probe a node before it is watched; nothing is noted if it takes too long, or nothing answers."""
        pool = Pool(node.name, self._fleet.clock)
        try:
            async with asyncio.timeout(_FIRST_LOOKS):
                return await self._probe(node, pool)
        except (NodeLost, TimeoutError):
            return lambda: None
        finally:
            pool.abort("the look is over")

    async def _probe(self, node: Node, pool: Pool) -> Callable[[], object]:
        """Ask a node's health, and its model if that may have changed. Returns what notes both. Raises NodeLost."""
        refused = partial(self._fleet.away, node, status="refused")
        asked = self._fleet.clock()
        status, content = await self._get(pool, b"/health")
        answered = self._fleet.clock()
        try:
            health = HealthResponse.model_validate_json(content)
        except ValidationError:
            return partial(refused, f"HTTP {status} at /health without a health that is known: is it a node?")
        if health.access is not None:
            return partial(refused, _ACCESS.get(health.access, _NO_ACCESS))
        if health.status != "ready":
            return partial(self._fleet.found, node, health, None)
        node.links.append(answered - asked)
        node.looked_at = answered
        if health.identity is None or (node.info is not None and node.identity == health.identity):
            return partial(self._fleet.found, node, health, node.info)
        status, content = await self._get(pool, b"/model")
        if status != 200:
            return partial(refused, f"/model: {from_body(status, content)}")
        try:
            return partial(self._fleet.found, node, health, ModelInfo.model_validate_json(content))
        except ValidationError as error:
            where = error.errors()[0]["loc"]
            return partial(refused, f"/model: not what a verifier of this version says: {where}")

    async def _get(self, pool: Pool, target: bytes) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(PATIENCE), pool.exchange(b"GET", target, self._headers) as (head, connection):
                return head.status, await connection.read_all(_MOST_OF_A_LOOK)
        except TimeoutError:
            raise NoReply(f"no reply within {PATIENCE:g} s") from None
