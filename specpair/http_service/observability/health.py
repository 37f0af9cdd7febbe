"""Reports the state of a service: by endpoints, health, liveness, readiness, metrics and usage; to
systemd, by sd_notify(3), that the service is ready, works or stops.

Systemd is told nothing without `NOTIFY_SOCKET`, which it sets for a unit of `Type=notify`. With `WatchdogSec=` it also
says how long a service may be silent: then it ends the service, and `Restart=` says whether it starts anew.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from specpair.http_service.keys.gate import Gate
from specpair.http_service.openapi.operation import BODY, Errors, Json, Operation
from specpair.http_service.replies.json_replies import JsonReply
from specpair.http_service.request_bodies import read_body
from specpair.http_service.sharing.joining import (
    MOST_BYTES,
    PATIENCE,
    SLOW,
    Guests,
    InvitingResponse,
    JoinRequest,
    JoinResponse,
)
from specpair.protocol.errors import Forbidden, InternalError, RateLimited, Unauthorized
from specpair.protocol.messages import parse
from specpair.protocol.service_responses import (
    HealthResponse,
    LiveResponse,
    ReadyResponse,
    ServiceStatus,
    UsageResponse,
)

_METRICS = (  # `/metrics`, in part
    "# HELP specpair_num_requests_waiting Requests that wait for a forward pass.\n"
    "# TYPE specpair_num_requests_waiting gauge\n"
    'specpair_num_requests_waiting{model_name="stdlib-target-q8_0"} 0.0\n'
)
_HEALTH: Json = {
    **{"status": "ready", "model": "stdlib-target-q8_0", "sessions": 0, "texts": 0, "waiting": 0},
    **{"generated_tokens": 0, "pass_seconds": 0.0},
}
_UNHEALTHY: dict[str, Json] = {
    "loading": {"status": "loading", "progress": 0.4},
    "draining": {"status": "draining"},
    "failed": {"status": "failed", "reason": "there is no file models/none.gguf"},
}
_COUNTED: Json = {"requests": 3, "prompt_tokens": 12, "generated_tokens": 72, "draft_tokens": 60, "accepted_tokens": 51}
_JOINED: Json = {
    **{"name": "laptop", "key": "sp-…", "service": "verifier", "host": "bigbox"},
    "addresses": [{"host": "192.168.1.20", "port": 8000}],
}
USAGE: Json = {"keys": [{"key": "alice", **_COUNTED}]}
_log = logging.getLogger("specpair.service")


class Condition(NamedTuple):
    """The state of a service. `retry_after`: whole seconds after which the state may differ; None: unknown."""

    status: ServiceStatus
    retry_after: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


class StateEndpoints:
    def __init__(
        self,
        gate: Gate,
        registry: CollectorRegistry,
        condition: Callable[[], Condition],
        health: Callable[[], tuple[HealthResponse, dict[str, str]]],
        metrics_open: bool = False,
    ) -> None:
        """`health`: the body of the reply to `/health`, and its headers.
        `metrics_open`: serve `/metrics` without the key.
        """
        self._gate, self._registry, self._condition, self._health = gate, registry, condition, health
        self._metrics_open = metrics_open

    async def get_health(self, request: Request) -> Response:
        """Whether the service is ready; 503 while it is not: it loads its model, drains, has failed, or its verifier is
        away or serves a model that cannot be drafted for.

        It needs no key. A caller that other endpoints would refuse gets only this, and the reason in `access`.
        """
        told, headers = self._health()
        try:
            self._gate.admit(request)
        except (Unauthorized, Forbidden) as error:
            told = HealthResponse(
                status=told.status,
                progress=told.progress,
                access="forbidden" if isinstance(error, Forbidden) else "unauthorized",
                reason="its log says why" if told.status == "failed" else None,
            )
        return JsonReply(told.body(), 200 if told.status == "ready" else 503, headers)

    async def get_live(self, request: Request) -> Response:
        """Whether the service works: 503 only when it has failed for good and should be restarted. It needs no key."""
        failed = self._condition().status == "failed"
        return JsonReply(LiveResponse(status="failed" if failed else "alive").body(), 503 if failed else 200)

    async def get_ready(self, request: Request) -> Response:
        """Whether it takes new texts: 503 also while it is overloaded. It needs no key."""
        found = self._condition()
        status = 200 if found.status == "ready" else 503
        return JsonReply(ReadyResponse(status=found.status).body(), status, found.headers)

    async def get_join(self, request: Request) -> Response:
        """How a guest recognises this service, if that is shared: the certificate that its link has the fingerprint of.
        It needs no key."""
        share = self._guests(request).share
        return JsonReply(InvitingResponse(certificate=share.anchor_pem, service=share.service).body())

    async def post_join(self, request: Request) -> Response:
        """Exchange the one-time token of a link for a key. It needs no key. After some wrong tokens, a client has to
        wait."""
        guests = self._guests(request)
        address = None if request.client is None else request.client.host
        try:
            guests.check_rate(address)
        except RateLimited:
            await asyncio.sleep(SLOW)  # who does not stop gets its replies one a second
            raise
        asked = parse(JoinRequest, await read_body(request, MOST_BYTES, PATIENCE))
        joined = await run_in_threadpool(guests.join, guests.find(asked.token, address), asked.name, address)
        return JsonReply(joined.body())

    def _guests(self, request: Request) -> Guests:
        guests, service = self._gate.guests, self._gate.access.names.service
        if guests is None:
            raise Forbidden(f"this {service} is not shared: start it with --share")
        return guests

    async def get_metrics(self, request: Request) -> Response:
        """Metrics in the text format of Prometheus. With the setting `metrics_open`, no key is needed for
        them."""
        if not self._metrics_open:
            self._gate.admit(request)
        # In a thread, since many keys make many series, and other requests must not wait for them. Prometheus takes
        # this format whatever else it prefers.
        written = await run_in_threadpool(generate_latest, self._registry)
        return Response(written, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def get_usage(self, request: Request) -> Response:
        """What was done for the caller's key since the start. For a key of an admin: for each key that was used."""
        return JsonReply(self._gate.usage(self._gate.admit(request)).body())


def state_operations(always: Errors) -> tuple[Operation, ...]:
    """The operations, whose endpoints are methods. `always`: errors of any request that needs a key."""
    tag, own = "operation", (InternalError,)
    failed, draining = {"failed": {"status": "failed"}}, {"draining": {"status": "draining"}}
    unhealthy = ("The model is loading, the service stops, or has failed.", _UNHEALTHY)
    dead, unready = ("It has failed.", failed), ("New texts are refused.", draining)
    health, live, ready = StateEndpoints.get_health, StateEndpoints.get_live, StateEndpoints.get_ready
    return (
        Operation(
            "GET", "/health", health, tag, HealthResponse, own, example=_HEALTH, needs_key=False, refusal=unhealthy
        ),
        Operation("GET", "/live", live, tag, LiveResponse, own, needs_key=False, refusal=dead),
        Operation("GET", "/ready", ready, tag, ReadyResponse, own, needs_key=False, refusal=unready),
        Operation(
            *("GET", "/join", StateEndpoints.get_join, tag, InvitingResponse),
            (InternalError, Forbidden),
            example={"certificate": "-----BEGIN CERTIFICATE-----\n…", "service": "verifier"},
            needs_key=False,
        ),
        Operation(
            *("POST", "/join", StateEndpoints.post_join, tag, JoinResponse),
            (InternalError, Forbidden, *BODY),
            request=JoinRequest,
            examples={"a laptop joins": {"token": "Hn5LqMnZ4b1Wc0o8V2zXQg", "name": "laptop"}},
            example=_JOINED,
            needs_key=False,
        ),
        Operation("GET", "/metrics", StateEndpoints.get_metrics, tag, None, always, text=_METRICS),
        Operation("GET", "/usage", StateEndpoints.get_usage, tag, UsageResponse, always, example=USAGE),
    )


class Supervisor:
    """Notifies systemd if systemd has started this process. `tell` is thread-safe, all else is for the event loop."""

    def __init__(
        self, works: Callable[[float], bool] = lambda _seconds: True, environment: Mapping[str, str] = os.environ
    ) -> None:
        """`works(seconds)`: whether the threads beside the event loop have made progress within so many seconds."""
        self._works, address = works, environment.get("NOTIFY_SOCKET", "")
        self._address = address.replace("@", "\0", 1) if address.startswith("@") else address
        asked = environment.get("WATCHDOG_USEC", "")
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._silence = int(asked) / 1e6 if asked.isdecimal() and ours and address else 0.0  # seconds; 0: for ever
        self._task: asyncio.Task[None] | None = None

    def tell(self, *lines: str) -> None:
        """Send assignments, such as `READY=1`, to systemd. Assignments that cannot be sent now are lost."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.setblocking(False)
                sending.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            _log.debug("cannot notify systemd of %s: %s", lines, error)

    def start(self) -> None:
        """Notify systemd regularly that the service works, until the event loop or `works` shows that it does not."""
        self._task = asyncio.create_task(self._watch()) if self._silence else None

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        worked = True
        while True:
            works = self._works(self._silence)
            if works:
                self.tell("WATCHDOG=1")
            elif worked:
                _log.error("no progress for %g s: notifications to systemd stop", self._silence)
                self.tell("STATUS=hangs")
            worked = works
            await asyncio.sleep(self._silence / 2)
