"""Ask for a verifier's health: once, as in an outage, or until its model is loaded, as at the start of a pair."""

from collections.abc import Callable
from typing import NamedTuple

from httpx import URL, Response

from drafter_client.errors import (
    BadReply,
    BadUrl,
    ConnectionLost,
    DrafterError,
    VerifierTimeout,
    VerifierUnreachable,
)
from drafter_client.http.requests import Requests
from drafter_client.http.responses import lacks, read
from drafter_client.http.retries import while_loading
from specpair.protocol.errors import BadGateway, NotFound, ServerError, ShuttingDown
from specpair.protocol.service_responses import HealthResponse
from specpair.protocol.terminal_text import one_line

IS_IT_ONE = "is it a verifier?"  # what to ask of what has no /model


class VerifierLoad(NamedTuple):
    """The load of a verifier: `texts` under way, requests `waiting` for a pass, and whether it refuses new texts."""

    texts: int = 0
    waiting: int = 0
    overloaded: bool = False


class Health(NamedTuple):
    """The health of a verifier.

    `why`: the reason if it is not `ready`.
    `progress`: how much of its model it has loaded, 0 to 1; None: unknown.
    `identity`: its identity if it is ready, and tells it to this caller.
    `draining`: whether it takes no new texts any more, and ends those under way.
    `load`: how busy it is.
    """

    ready: bool
    why: str = ""
    progress: float | None = None
    identity: str = ""
    draining: bool = False
    load: VerifierLoad = VerifierLoad()


def check_health(client: Requests, *, started: bool = True) -> Health:
    """Ask for the verifier's health once, and return it. A connection that fails counts as not ready.

    `started`: whether the model was seen. If it was not, a failed load is an error, and if a router's nodes serve only
        others, its error is raised: else the verifier, or the node, may be restarting.

    Raises an error for what waiting does not mend.
    """
    try:
        response = client.exchange_once("GET", "/health")
        told = _told(client, response)
    except (ConnectionLost, VerifierUnreachable, VerifierTimeout, BadReply):
        return Health(False, "nothing answers")
    if response.status_code == 200:
        load = VerifierLoad() if told is None else VerifierLoad(told.texts or 0, told.waiting or 0, told.overloaded)
        return Health(True, identity=(told and told.identity) or "", load=load)
    if told is not None and told.status == "failed":
        if started:  # its process ends, and may be started anew
            return Health(False, f"it has failed: {one_line(told.reason or '')}")
        raise DrafterError(f"the verifier at {client.url} has failed: {told.reason}")
    if told is not None and told.status == "loading":
        return Health(False, "loading its model", told.progress)
    if told is not None and told.status == "draining":
        return Health(False, "it is being stopped", draining=True)
    if told is not None and told.status == "verifier_away":
        if not started and (refusal := _refusal_of_model(client)) is not None:
            raise refusal
        return Health(False, _why_away(told))
    error = client.refusal(response)
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
        told = _told(client, response)
        if response.status_code == 200:
            return
        if told is not None and told.status == "failed":
            raise DrafterError(f"the verifier at {client.url} has failed: {told.reason}")
        if told is not None and told.status == "draining":
            raise ShuttingDown(f"the verifier at {client.url} is being stopped, and takes no new texts")
        if told is not None and told.status == "verifier_away":
            raise _refusal_of_model(client) or BadGateway(_why_away(told))
        if told is None or told.status != "loading":
            if response.status_code == 404 and (path := URL(client.url).path.strip("/")):
                raise BadUrl(f"{client.url} has no /health: {_wrong_path(path)}")
            raise client.refusal(response)
        if told.access is not None:  # the client will be refused: say so now, not after minutes of loading
            raise client.refusal(client.exchange("GET", "/model"))
        pause = while_loading(clock() - began, patience)
        if pause is None:
            raise DrafterError(f"the verifier at {client.url} is still loading its model after {patience:.0f} s")
        if on_wait is not None:
            on_wait(told.progress)
        sleep(pause)


def _refusal_of_model(client: Requests) -> Exception | None:
    """The error by which a router without a node that is ready says what no wait mends; None: waiting may."""
    try:
        response = client.exchange_once("GET", "/model")
    except (ConnectionLost, VerifierUnreachable, VerifierTimeout, BadReply):
        return None
    refusal = None if response.status_code == 200 else client.refusal(response)  # 200: a node has just come
    if isinstance(refusal, NotFound):  # from another drafter, say, whose verifier is away
        return lacks(client.url, "/model", refusal, IS_IT_ONE)
    return None if isinstance(refusal, ServerError) else refusal


def _wrong_path(path: str) -> str:
    if path.split("/")[-1] == "v1":
        return "leave /v1 out, which only programs that speak OpenAI's API add"
    return f"the path /{path} of the verifier's address is wrong: check --verifier (in Python: verifier)"


def _why_away(told: HealthResponse) -> str:
    return one_line(told.reason or "its verifier does not answer")


def _told(client: Requests, response: Response) -> HealthResponse | None:
    """What a response of `/health` says; None for an error that is none of a verifier. Raises BadReply for status 200
    and another body than a verifier's."""
    try:
        return read(client.url + "/health", HealthResponse, response.content)
    except BadReply:
        if response.status_code == 200:
            raise
        return None
