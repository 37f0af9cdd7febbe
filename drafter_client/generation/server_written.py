"""A text generated on the verifier and streamed: by the target alone, or with server-side drafting (mode `fused`)."""

from collections.abc import Callable, Generator
from typing import Any

from drafter_client.errors import BadReply, ConnectionLost
from drafter_client.generation.observer import Committed, Observer
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.fields import Fields
from drafter_client.http.responses import GenerateResponse, ResponseBounds, decisions_on
from drafter_client.metrics.statistics import Stats
from drafter_client.metrics.token_source import TokenSource

_PATH = "/generate"


def served(
    client: VerifierClient,
    text: TextSession,
    request: dict[str, Any],
    bounds: ResponseBounds,
    stats: Stats,
    clock: Callable[[], float],
    observer: Observer | None = None,
) -> Generator[Committed, None, None]:
    """Yield the tokens after those in `text` as they arrive; fill `stats`. Closing the generator stops the verifier.

    The verifier reports its own times and its looked-up draft tokens in a summary at the end. If the request breaks,
    they are unknown: all of its time counts as `network`, and no looked-up draft tokens are counted.

    `request`: the fields of `/generate` other than those of the text. `bounds`: checked for all tokens. `clock`:
    returns seconds. `observer`: receives `began` and `committed`; the drafter sees no other events. Raises BadReply for
    an inconsistent stream, and what the client raises.
    """
    began = clock()
    text.since = before = began if text.since is None else text.since
    explained = bool(request.get("explain"))
    sent_before, received_before = client.connection.traffic.sent, client.connection.traffic.received
    stats.prompt_tokens = len(text.prompt_ids)
    known, tokens = len(text.known), list(text.tokens)
    summary: GenerateResponse | None = None
    if observer is not None:
        observer.began(1e3 * began)
    try:
        text.opened = True
        for name, data in client.generate(text, request):
            event, now = client.fields(_PATH, data), clock()
            if summary is not None:
                raise BadReply(f"{client.url}{_PATH} continues after its summary")
            position = len(text.prompt_ids) + len(tokens)
            if name == "open":  # the session id in it is the one that was sent
                event.expect("position", position)
                continue
            if name == "end":
                summary = GenerateResponse.read(event, tokens)
                stats.served(summary)
                continue  # the connection can be used again only after the response was read to its end
            new = event.ids("tokens")
            if not new:
                continue
            event.expect("position", position)
            bounds.check(_PATH, position, new)
            decisions = decisions_on(event, new)
            bounds.check_explained(_PATH, explained, decisions)
            committed = Committed(_with_sources(event, new), decisions)
            if event.has("judged"):
                stats.judged(event.count("judged"), event.count("accepted"), first=position == known)
            stats.wrote(committed.tokens, 1e3 * (now - before), decisions or ())
            tokens += new
            text.since = before = now
            if observer is not None:
                observer.committed(position, committed, 1e3 * now)
            yield committed
        if summary is None:
            # A proxy may cut a stream off, for example.
            raise ConnectionLost(f"{client.url}{_PATH} ended its stream without a summary")
    finally:
        took = 1e3 * (clock() - began)
        stats.exchanged(took, summary)
        stats.total_ms += took
        stats.bytes_sent += client.connection.traffic.sent - sent_before
        stats.bytes_received += client.connection.traffic.received - received_before


def _with_sources(event: Fields, tokens: list[int]) -> list[tuple[int, TokenSource]]:
    """The tokens of a verifier pass with their sources: accepted draft tokens, then a recovered or a bonus token."""
    if not event.has("accepted"):  # nothing was drafted
        return [(token, TokenSource.BONUS) for token in tokens]
    accepted = event.count("accepted", most=len(tokens))
    judged = event.count("judged")
    last = TokenSource.RECOVERED if judged > accepted else TokenSource.BONUS
    sources = [TokenSource.ACCEPTED] * accepted + [last] * (len(tokens) - accepted)
    return list(zip(tokens, sources, strict=True))
