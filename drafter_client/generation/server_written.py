"""A text that the verifier writes by itself, streamed: by the target alone, or fused with a draft model of its own."""

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
    """Yield the tokens behind those that `text` has, as they come; fills `stats`. Closing it stops the verifier.

    What the verifier says of its part comes in the end: of a request that broke it stays unknown, which counts its time
    as `network`, and leaves out what it looked up.

    `request`: fields of `/generate` beside those of the text. `clock` in seconds. `observer`: is told when it begins
    and what is committed; there is nothing else to see from here. Raises BadReply for a stream that does not
    add up, and what the client raises.
    """
    began = clock()
    text.since = before = began if text.since is None else text.since
    explained = bool(request.get("explain"))
    sent_before, received_before = client.transport.sent, client.transport.received
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
                raise BadReply(f"{client.url}{_PATH} goes on behind its summary")
            position = len(text.prompt_ids) + len(tokens)
            if name == "open":  # it names the session, which it was told
                event.expect("position", position)
                continue
            if name == "end":
                summary = GenerateResponse.read(event, tokens)
                stats.served(summary)
                continue  # to the end of the answer: the connection is good for another only when that was read
            new = event.ids("tokens")
            if not new:
                continue
            event.expect("position", position)
            bounds.check(_PATH, position, new)
            decisions = decisions_on(event, new)
            bounds.check_explained(_PATH, explained, decisions)
            committed = Committed(_by_origin(event, new), decisions)
            if event.has("judged"):
                stats.judged(event.count("judged"), event.count("accepted"), first=position == known)
            stats.wrote(committed.tokens, 1e3 * (now - before), decisions or ())
            tokens += new
            text.since = before = now
            if observer is not None:
                observer.committed(position, committed, 1e3 * now)
            yield committed
        if summary is None:
            raise ConnectionLost(f"{client.url}{_PATH} ended its stream without a summary")  # cut off by a proxy, say
    finally:
        took = 1e3 * (clock() - began)
        stats.exchanged(took, summary)
        stats.total_ms += took
        stats.bytes_sent += client.transport.sent - sent_before
        stats.bytes_received += client.transport.received - received_before


def _by_origin(event: Fields, tokens: list[int]) -> list[tuple[int, TokenSource]]:
    """Of the tokens of a pass: the drafts that stood, then one that took the place of a draft, or that was free."""
    if not event.has("accepted"):  # nothing was drafted
        return [(token, TokenSource.BONUS) for token in tokens]
    accepted = event.count("accepted", most=len(tokens))
    judged = event.count("judged")
    last = TokenSource.RECOVERED if judged > accepted else TokenSource.BONUS
    sources = [TokenSource.ACCEPTED] * accepted + [last] * (len(tokens) - accepted)
    return list(zip(tokens, sources, strict=True))
