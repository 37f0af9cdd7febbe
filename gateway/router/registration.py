"""Registers a service with a router, with periodic reports. Verifier and drafter use it."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote

from gateway.router.connections import NodeLost, Pool, node_url
from gateway.router.messages import NodeRequest
from specpair.command_line.parser import flag
from specpair.command_line.setting_values import SettingsError
from specpair.http_service.options import NodeOptions
from specpair.protocol.errors import from_body

EVERY = 5.0  # seconds between two reports; a node leaves after three that did not come
_MISSED = 3
_PATIENCE = 5.0  # seconds for a reply
_LEAVING = 2.0  # seconds that the end of the service waits for
_log = logging.getLogger("gateway.router")


class Registration:
    """Reports to one router. Used in the event loop."""

    def __init__(self, router: str, key: str, node: NodeRequest, every: float = EVERY) -> None:
        """`router`: its URL.
        `key`: its key for registration.
        `node`: its request.
        `every`: seconds between two reports.
        """
        self._router, self._node = router, node.model_copy(update={"ttl": _MISSED * every})
        self._headers = [(b"authorization", b"Bearer " + key.encode()), (b"content-type", b"application/json")]
        self._every = every
        self._pool = Pool(router)
        self._task: asyncio.Task[None] | None = None
        self._complaint: str | None = ""  # the last one that was logged; None: the router takes the reports

    def start(self) -> None:
        """Begin to report."""
        self._task = asyncio.create_task(self._report())

    async def stop(self) -> None:
        """Report no longer, and tell the router that the service leaves."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with suppress(NodeLost, TimeoutError):  # then the router finds out by itself
            async with asyncio.timeout(_LEAVING):
                await self._send(b"DELETE", b"/nodes?url=" + quote(self._node.url, safe="").encode(), b"")
        self._pool.abort("the service ends")

    async def _report(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_PATIENCE):
                    self._note_result(await self._send(b"POST", b"/nodes", self._node.body()))
            except NodeLost as error:
                self._note_result(str(error))
            except TimeoutError:
                self._note_result(f"no reply within {_PATIENCE:g} s")
            await asyncio.sleep(self._every)

    async def _send(self, method: bytes, target: bytes, body: bytes) -> str | None:
        """Send a request. Returns the error; None: none. Raises NodeLost."""
        async with self._pool.exchange(method, target, self._headers, body) as (head, connection):
            content = await connection.read_all()
        return None if head.status == 200 else str(from_body(head.status, content))

    def _note_result(self, complaint: str | None) -> None:
        if complaint == self._complaint:
            return
        self._complaint = complaint
        if complaint is None:
            _log.info("registered with the router at %s as %s", self._router, self._node.url)
        else:
            _log.warning("the router at %s refuses this service: %s", self._router, complaint)


def registration_of(given: NodeOptions, key: Callable[[str], str]) -> Registration | None:
    """The registration that settings ask for; None: none. `key`: the name by which a setting was given.

    Raises SettingsError.
    """
    if given.router is None:
        return None
    missing = flag if key("router") == flag("router") else key  # who gave the one as a flag gives the other so, too
    if given.advertise is None:
        raise SettingsError(
            f"{key('router')}: the router has to know where it reaches this service: set {missing('advertise')}, too"
        )
    if given.router_key is None:
        raise SettingsError(
            f"{key('router')}: a router wants its key for registration: set {missing('router_key')}, too"
        )
    urls = {}
    for name, url in (("router", given.router), ("advertise", given.advertise)):
        try:
            urls[name] = node_url(url)
        except ValueError as error:
            raise SettingsError(f"{key(name)}: {error}") from None
    node = NodeRequest(url=urls["advertise"], weight=given.weight, hourly_price=given.hourly_price)
    return Registration(urls["router"], given.router_key.get_secret_value(), node)
