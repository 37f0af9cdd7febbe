"""A text that the verifier writes by itself, streamed: by the target alone, or fused with a draft model of its own."""

from collections.abc import Callable, Generator, Iterator
from typing import Any

from drafter_client.client import VerifierClient
from drafter_client.errors import BadReply
from drafter_client.fields import Fields
from drafter_client.observer import Committed, Observer
from drafter_client.origin import Origin
from drafter_client.replies import Bounds, Summary, decisions_on
from drafter_client.stats import Stats

_PATH = "/generate"


def served(
    client: VerifierClient,
    prompt_ids: list[int],
    request: dict[str, Any],
    bounds: Bounds,
    stats: Stats,
    clock: Callable[[], float],
    observer: Observer | None = None,
) -> Generator[Committed, None, None]:
    """Yield tokens as they come; fills `stats`. Closing it stops the verifier. Where the connection breaks, the text is
    asked for anew behind what has come of it. What the verifier says of its part comes in the end: of a request that
    broke it stays unknown, which counts its time as `network`, and leaves out what it looked up.

    `request`: fields of `/generate`, with `max_tokens`. `clock` in seconds. `observer`: is told when it begins and what
    is committed; there is nothing else to see from here. Raises BadReply for a stream that does not
    add up, and what the client raises.
    """
    began = before = clock()
    explained = bool(request.get("explain"))
    sent_before, received_before = client.transport.sent, client.transport.received
    stats.prompt_tokens = len(prompt_ids)
    held = 0  # tokens of the text that the request under way was sent with

    def begin() -> Iterator[tuple[str, dict[str, Any]]]:
        nonlocal held
        held = len(stats.token_ids)
        over = stats.finish_reason is not None  # the summary came, and only the end of the answer is missing
        if over or (held and bounds.finish_reason(prompt_ids + stats.token_ids) is not None):
            return iter(())  # or not even the summary came
        left = request["max_tokens"] - held
        return client.generate(prompt_ids + stats.token_ids, request | {"max_tokens": left})

    if observer is not None:
        observer.began(1e3 * began)
    try:
        for name, data in client.followed(begin):
            event, now = client.fields(_PATH, data), clock()
            if stats.finish_reason is not None:
                raise BadReply(f"{client.url}{_PATH} goes on behind its summary")
            if name == "open":
                continue
            if name == "end":
                stats.served(Summary.read(event, stats.token_ids[held:]))
                continue  # to the end of the answer: the connection is good for another only when that was read
            tokens = event.ids("tokens")
            if not tokens:
                continue
            position = len(prompt_ids) + len(stats.token_ids)
            bounds.check(_PATH, position, tokens)
            decisions = decisions_on(event, tokens)
            bounds.check_explained(_PATH, explained, decisions)
            committed = Committed(_by_origin(event, tokens), decisions)
            if event.has("judged"):
                stats.judged(event.count("judged"), event.count("accepted"), first=len(stats.token_ids) == held)
            stats.wrote(committed.tokens, 1e3 * (now - before), decisions or ())
            before = now
            if observer is not None:
                observer.committed(position, committed, 1e3 * now)
            yield committed
        stats.finish_reason = stats.finish_reason or bounds.finish_reason(prompt_ids + stats.token_ids)
        if stats.finish_reason is None:
            raise BadReply(f"{client.url}{_PATH} ended its stream without a summary")
        stats.exchanged(1e3 * (clock() - began))
    finally:
        stats.total_ms = 1e3 * (clock() - began)
        stats.bytes_sent = client.transport.sent - sent_before
        stats.bytes_received = client.transport.received - received_before


def _by_origin(event: Fields, tokens: list[int]) -> list[tuple[int, Origin]]:
    """Of the tokens of a pass: the drafts that stood, then one that took the place of a draft, or that was free."""
    if not event.has("accepted"):  # nothing was drafted
        return [(token, Origin.FREE) for token in tokens]
    accepted = event.count("accepted", most=len(tokens))
    judged = event.count("judged")
    last = Origin.CORRECTION if judged > accepted else Origin.FREE
    origins = [Origin.ACCEPTED] * accepted + [last] * (len(tokens) - accepted)
    return list(zip(tokens, origins, strict=True))
