"""A text generated on the verifier and streamed: by the target alone, or with server-side drafting (mode `fused`)."""

from collections.abc import Callable, Generator
from typing import Any

from drafter_client.errors import BadReply, ConnectionLost
from drafter_client.generation.events import Began, Committed, Ended, Listener, Served
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.fields import Fields
from drafter_client.http.responses import GenerateResponse, ResponseBounds, decisions_on
from drafter_client.metrics.token_source import TokenSource

_PATH = "/generate"


def served(
    client: VerifierClient,
    text: TextSession,
    request: dict[str, Any],
    bounds: ResponseBounds,
    tell: Listener,
    clock: Callable[[], float],
) -> Generator[Committed, None, None]:
    """Yield the tokens after those in `text` as they arrive. Closing the generator stops the verifier.

    The verifier reports its own times and its looked-up draft tokens in a summary at the end. If the request breaks,
    they are unknown.

    `request`: the fields of `/generate` other than those of the text. `bounds`: checked for all tokens. `tell`: takes
    the events of the run; the drafter sees no others. `clock`: returns seconds. Raises BadReply for an inconsistent
    stream, and what the client raises.
    """
    explained = bool(request.get("explain"))
    sent_before, received_before = client.transport.sent, client.transport.received
    prefilled = len(text.known)
    summary: GenerateResponse | None = None
    tell(Began(len(text.prompt_ids)), 1e3 * clock())
    try:
        text.opened = True
        for name, data in client.generate(text, request):
            event, now = client.fields(_PATH, data), 1e3 * clock()
            if summary is not None:
                raise BadReply(f"{client.url}{_PATH} continues after its summary")
            position = len(text.known)
            if name == "open":  # the session id in it is the one that was sent
                event.expect("position", position)
                continue
            if name == "end":
                summary = GenerateResponse.read(event, text.tokens)
                text.finish_reason = summary.finish_reason
                continue  # the connection can be used again only after the response was read to its end
            new = event.ids("tokens")
            if not new:
                continue
            event.expect("position", position)
            bounds.check(_PATH, position, new)
            decisions = decisions_on(event, new)
            bounds.check_explained(_PATH, explained, decisions)
            judged = event.count("judged") if event.has("judged") and position > prefilled else None
            committed = Committed(position, _with_sources(event, new), decisions, judged=judged)
            text.known += new
            tell(committed, now)
            yield committed
        if summary is None:
            # A proxy may cut a stream off, for example.
            raise ConnectionLost(f"{client.url}{_PATH} ended its stream without a summary")
    finally:
        now = 1e3 * clock()
        sent, received = client.transport.sent - sent_before, client.transport.received - received_before
        tell(Served(summary), now)
        tell(Ended(text.finish_reason, sent, received), now)


def _with_sources(event: Fields, tokens: list[int]) -> list[tuple[int, TokenSource]]:
    """The tokens of a verifier pass with their sources: accepted draft tokens, then a recovered or a bonus token."""
    if not event.has("accepted"):  # nothing was drafted
        return [(token, TokenSource.BONUS) for token in tokens]
    accepted = event.count("accepted", most=len(tokens))
    judged = event.count("judged")
    last = TokenSource.RECOVERED if judged > accepted else TokenSource.BONUS
    sources = [TokenSource.ACCEPTED] * accepted + [last] * (len(tokens) - accepted)
    return list(zip(tokens, sources, strict=True))
