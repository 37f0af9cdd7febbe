"""Ask for a verifier's health: once, as in an outage, or until its model is loaded, as at the start of a pair."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from httpx import Response

from drafter_client.errors import (
    BadReply,
    ConnectionLost,
    DrafterError,
    ModelChanged,
    VerifierTimeout,
    VerifierUnreachable,
)
from drafter_client.http.fields import Fields
from drafter_client.http.responses import ModelInfo
from drafter_client.http.retries import while_loading
from speculation.errors import ServerError


class Health(NamedTuple):
    """The health of a verifier. `why`: the reason if it is not `ready`. `progress`: how much of its model it has
    loaded, 0 to 1; None: unknown."""

    ready: bool
    why: str = ""
    progress: float | None = None


class Connection(Protocol):
    """What a health check needs of a client."""

    url: str

    def exchange(self, method: str, path: str) -> Response:
        """Return the response to a request, which is repeated while connections break."""

    def exchange_once(self, method: str, path: str) -> Response:
        """Return the response to a request that is not repeated."""

    def body(self, response: Response) -> Any:
        """Return the parsed JSON of a response; None for an error without any. Raises BadReply."""

    def refusal(self, response: Response) -> Exception:
        """Return the error that a response with another status than 200 reports."""


def check_health(client: Connection, target: ModelInfo | None) -> Health:
    """Ask for the verifier's health once, and return it. A connection that fails counts as not ready.

    Raises an error for what waiting does not mend: a failed load, a refusal, and ModelChanged if the verifier serves
    another model than `target` (None: any model will do).
    """
    try:
        response = client.exchange_once("GET", "/health")
        body = client.body(response)
        if response.status_code == 200 and target is not None:
            response = client.exchange_once("GET", "/model")
            body = client.body(response)
            if response.status_code == 200:
                _check_serves(client.url, target, ModelInfo.read(Fields(client.url + "/model", body), None))
    except (ConnectionLost, VerifierUnreachable, VerifierTimeout, BadReply):
        return Health(False, "nothing answers")
    if response.status_code == 200:
        return Health(True)
    status = body.get("status") if isinstance(body, dict) else None
    if status == "failed":
        raise DrafterError(f"the verifier at {client.url} has failed: {body.get('reason')}")
    if status == "loading":
        return Health(False, "loading its model", _progress(client.url, body))
    error = client.refusal(response)
    if isinstance(error, ServerError):  # from a verifier that is shutting down, or from a proxy before it
        return Health(False, error.message)
    raise error


def wait_until_ready(
    client: Connection,
    patience: float,
    on_wait: Callable[[float | None], None] | None,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
) -> None:
    """Return when the verifier has loaded its model.

    `on_wait` is called after each health check with the progress of loading from 0 to 1, or None if it is unknown.
    Raises DrafterError if loading fails or takes longer than `patience` seconds, and the verifier's refusal.
    """
    began = clock()
    while True:
        response = client.exchange("GET", "/health")
        body = client.body(response)
        if response.status_code == 200:
            return
        status = body.get("status") if isinstance(body, dict) else None
        if status == "failed":
            raise DrafterError(f"the verifier at {client.url} could not load its model: {body.get('reason')}")
        if status != "loading":
            raise client.refusal(response)
        if "access" in body:  # the client will be refused: say so now, not after minutes of loading
            raise client.refusal(client.exchange("GET", "/model"))
        pause = while_loading(clock() - began, patience)
        if pause is None:
            raise DrafterError(f"the verifier at {client.url} is still loading its model after {patience:.0f} s")
        if on_wait is not None:
            on_wait(_progress(client.url, body))
        sleep(pause)


def _progress(url: str, body: Any) -> float | None:
    return Fields(url + "/health", body).share_if_any("progress")


def _check_serves(url: str, target: ModelInfo, found: ModelInfo) -> None:
    if (found.name, found.vocabulary) != (target.name, target.vocabulary):
        raise ModelChanged(
            f"the verifier at {url} serves {found.name} now, and the text was begun by {target.name}"
            f"{', with another vocabulary' if found.name == target.name else ''}: the rest would be another model's"
        )
