"""A text generated on the verifier and streamed: by the target alone, or with server-side drafting (mode `fused`)."""

from collections.abc import Callable, Generator
from typing import Any

from drafter_client.errors import BadReply, ConnectionLost
from drafter_client.generation.observer import Committed, Observer
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import ResponseBounds, broken_promise, expect
from drafter_client.metrics.statistics import Stats
from drafter_client.metrics.token_source import TokenSource
from speculation.protocol.responses import GenerateOpenEvent, GenerateResponse, GenerateTokensEvent

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
    explained, where = bool(request.get("explain")), client.url + _PATH
    sent_before, received_before = client.connection.traffic.sent, client.connection.traffic.received
    stats.prompt_tokens = len(text.prompt_ids)
    known, tokens = len(text.known), list(text.tokens)
    summary: GenerateResponse | None = None
    if observer is not None:
        observer.began(1e3 * began)
    try:
        text.opened = True
        for event in client.generate(text, request):
            now, position = clock(), len(text.prompt_ids) + len(tokens)
            if summary is not None:
                raise BadReply(f"{where} continues after its summary")
            if isinstance(event, GenerateResponse):
                if event.token_ids != tokens:
                    raise broken_promise(where, "token_ids is not what was streamed")
                summary = event
                stats.served(summary)
                continue  # the connection can be used again only after the response was read to its end
            expect(where, "position", event.position, position)
            if isinstance(event, GenerateOpenEvent) or not event.tokens:
                continue  # the session id of an `open` event is the one that was sent
            new = event.tokens
            bounds.check(_PATH, position, new)
            decisions = bounds.explained(_PATH, explained, new, event.decisions)
            committed = Committed(_with_sources(where, event), decisions)
            if event.judged is not None and event.accepted is not None:
                stats.judged(event.judged, event.accepted, first=position == known)
            stats.wrote(committed.tokens, 1e3 * (now - before), decisions or ())
            tokens += new
            text.since = before = now
            if observer is not None:
                observer.committed(position, committed, 1e3 * now)
            yield committed
        if summary is None:
            # A proxy may cut a stream off, for example.
            raise ConnectionLost(f"{where} ended its stream without a summary")
    finally:
        took = 1e3 * (clock() - began)
        stats.exchanged(took, summary)
        stats.total_ms += took
        stats.bytes_sent += client.connection.traffic.sent - sent_before
        stats.bytes_received += client.connection.traffic.received - received_before


def _with_sources(where: str, event: GenerateTokensEvent) -> list[tuple[int, TokenSource]]:
    """The tokens of a verifier pass with their sources: accepted draft tokens, then a recovered or a bonus token."""
    accepted, judged = event.accepted or 0, event.judged or 0  # none where nothing was drafted
    if accepted > len(event.tokens):
        raise broken_promise(where, f"accepted is {accepted}, not 0 to {len(event.tokens)}")
    last = TokenSource.RECOVERED if judged > accepted else TokenSource.BONUS
    sources = [TokenSource.ACCEPTED] * accepted + [last] * (len(event.tokens) - accepted)
    return list(zip(event.tokens, sources, strict=True))
