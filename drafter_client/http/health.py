"""Ask for a verifier's health: once, as in an outage, or until its model is loaded, as at the start of a pair. The
state of one of several verifiers: `PooledVerifier`."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from httpx import URL, Response

from drafter_client.errors import BadReply, BadUrl, DrafterError
from drafter_client.http import retries
from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.outages import Health
from drafter_client.http.requests import Requests
from drafter_client.http.responses import lacks, read
from gateway.balancing import queue_time
from specpair.protocol.errors import BadGateway, NotFound, ServerError, ShuttingDown
from specpair.protocol.service_responses import HealthResponse, ModelInfo, continues
from specpair.protocol.terminal_text import one_line

IS_IT_ONE = "is it a verifier?"  # what to ask of what has no /model
_LINKS = 5  # round trips that are kept: the shortest is nearest to the link's own
_LONG_AGO = float("-inf")
_UNKNOWN = Health(False, "nothing is known of it yet")


def check_health(client: Requests, *, started: bool = True) -> Health:
    """Ask for the verifier's health once, and return it. A connection that fails counts as not ready.

    `started`: whether the model was seen. If it was not, a failed load is an error, and if a router's nodes serve only
        others, its error is raised: else the verifier, or the node, may be restarting.

    Raises an error for what waiting does not mend.
    """
    try:
        response = client.exchange_once("GET", "/health")
        told = _health_in(client, response)
    except (*retries.SILENT, BadReply):
        return Health(False, "nothing answers")
    if response.status_code == 200:
        assert told is not None  # else `_health_in` has raised
        texts, waiting = told.texts or 0, told.waiting or 0
        return Health(True, identity=told.identity or "", texts=texts, waiting=waiting, overloaded=told.overloaded)
    if told is not None and told.status == "failed" and started:  # its process ends, and may be started anew
        return Health(False, f"it has failed: {one_line(told.reason or '')}")
    if told is not None and told.status == "loading":
        return Health(False, "loading its model", told.progress)
    if told is not None and told.status == "draining":
        return Health(False, "it is being stopped", draining=True)
    error = _refusal(client, response, told, asks_model=not started)
    if isinstance(error, ServerError):  # from a verifier that is shutting down, or from a proxy before it
        return Health(False, error.message)
    raise error


def wait_until_ready(
    client: Requests,
    patience: float,
    on_wait: Callable[[float | None], None] | None,
    sleep: Callable[[float], object],
    clock: Callable[[], float],
) -> None:
    """Return when the verifier has loaded its model.

    `on_wait` is called after each health check with the progress of loading from 0 to 1, or None if it is unknown.
    Raises DrafterError if loading fails or takes longer than `patience` seconds, BadUrl for an address with a wrong
    path, such as OpenAI's /v1, BadGateway while a router has no node that is ready, and the verifier's refusal, such as
    UnknownModel.
    """
    began = clock()
    while True:
        response = client.exchange("GET", "/health")
        told = _health_in(client, response)
        if response.status_code == 200:
            return
        if told is None or told.status != "loading":
            if response.status_code == 404 and (path := URL(client.url).path.strip("/")):
                advice = f"the path /{path} of the verifier's address is wrong: check --verifier (in Python: verifier)"
                if path.split("/")[-1] == "v1":
                    advice = "leave /v1 out, which only programs that speak OpenAI's API add"
                raise BadUrl(f"{client.url} has no /health: {advice}")
            raise _refusal(client, response, told, asks_model=True)
        if told.access is not None:  # the client will be refused: say so now, not after minutes of loading
            raise client.refusal(client.exchange("GET", "/model"))
        if clock() - began > patience:
            raise DrafterError(f"the verifier at {client.url} is still loading its model after {patience:.0f} s")
        if on_wait is not None:
            on_wait(told.progress)
        sleep(retries.CHECK_PAUSE)


def _refusal(client: Requests, response: Response, told: HealthResponse | None, *, asks_model: bool) -> Exception:
    """The error of a verifier that is neither ready nor loading.

    `asks_model`: whether to ask a router without a ready node for its model: the reply may say why waiting is
        useless.
    """
    if told is not None and told.status == "failed":
        return DrafterError(f"the verifier at {client.url} has failed: {told.reason}")
    if told is not None and told.status == "draining":
        return ShuttingDown(f"the verifier at {client.url} is being stopped, and takes no new texts")
    if told is None or told.status != "verifier_away":
        return client.refusal(response)
    away = BadGateway(one_line(told.reason or "its verifier does not answer"))
    try:
        model = client.exchange_once("GET", "/model") if asks_model else None
    except (*retries.SILENT, BadReply):
        return away
    refusal = away if model is None or model.status_code == 200 else client.refusal(model)  # 200: a node has just come
    if isinstance(refusal, NotFound):  # from another drafter, say, whose verifier is away
        return lacks(client.url, "/model", refusal, IS_IT_ONE)
    return away if isinstance(refusal, ServerError) else refusal


def _health_in(client: Requests, response: Response) -> HealthResponse | None:
    """Parse a response of `/health`; None for an error that no verifier sends. Raises BadReply for status 200
    and another body than a verifier's."""
    try:
        return read(client.url + "/health", HealthResponse, response.content)
    except BadReply:
        if response.status_code == 200:
            raise
        return None


class VerifierStatus(NamedTuple):
    address: VerifierAddress
    why: str  # why no new text goes there; empty: it is ready
    round_trip: float  # seconds, the shortest of the last ones


@dataclass(slots=True, eq=False)
class PooledVerifier:
    """State of one of several verifiers. Times are in seconds."""

    address: VerifierAddress
    due: threading.Event = field(default_factory=threading.Event)  # set: look now
    health: Health = _UNKNOWN
    info: ModelInfo | None = None  # what it serves
    refusal: str = ""  # why waiting for it is in vain, such as that it wants another key; empty: it may not be
    differs: str = ""  # what it serves, if that is another model
    looked: bool = False
    begun: int = 0  # texts that have gone there since the last look
    failures: int = 0  # requests in a row
    failed_at: float = _LONG_AGO
    out_until: float = _LONG_AGO
    links: deque[float] = field(default_factory=lambda: deque(maxlen=_LINKS))

    @property
    def link(self) -> float:
        return min(self.links, default=0.0)

    @property
    def cost(self) -> float:
        """Seconds until a draft of one more text is judged."""
        if self.info is None:
            return self.link
        texts, slots = self.health.texts + self.begun, max(1, self.info.rows)
        return queue_time(self.link, self.info.pass_times, slots, texts, self.health.waiting)

    @property
    def ready(self) -> bool:
        return self.health.ready and not self.refusal and not self.differs

    @property
    def changed(self) -> bool:
        return self.health.ready and bool(self.differs)

    @property
    def why(self) -> str:
        return self.refusal or (self.changed and self.differs) or self.health.why or "asked in vain"


def difference(theirs: ModelInfo, ours: ModelInfo) -> str:
    """How `theirs` differs from `ours`, in words; empty if a text of one can continue with the other."""
    if continues(theirs.identity, ours.identity):
        return ""
    if theirs.name != ours.name:
        return f"it serves {theirs.name}, and the texts are those of {ours.name}"
    what = "another vocabulary" if theirs.vocabulary != ours.vocabulary else "other weights or another way to sample"
    return f"it serves {theirs.name} with {what}"
