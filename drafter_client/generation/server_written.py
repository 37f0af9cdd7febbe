"""A text generated on the verifier and streamed: by the target alone, or with server-side drafting (mode `fused`)."""

from collections.abc import Callable, Generator
from typing import Any

from drafter_client.errors import BadReply, ConnectionLost
from drafter_client.generation.events import Began, Committed, Ended, Listener, PromptCached, PromptRead, Served
from drafter_client.http.client import VerifierClient
from drafter_client.http.responses import broken_promise, expect
from drafter_client.http.text_session import ResponseBounds, TextSession
from specpair.protocol.prompt_progress import PromptProgress
from specpair.protocol.responses import GenerateOpenEvent, GenerateResponse
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.token_sources import rounds

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

    `request`: the fields of `/generate` other than those of the text.
    `bounds`: checked for all tokens.

    Raises BadReply for an inconsistent stream, and what the client raises.
    """
    where = client.url + _PATH
    traffic = client.connection.traffic
    sent_before, received_before = traffic.sent, traffic.received
    prefilled = len(text.known)
    summary: GenerateResponse | None = None
    tell(Began(len(text.prompt_ids)), clock())
    try:
        text.opened = True
        for event in client.generate(text, request):
            now = clock()
            if summary is not None:
                raise BadReply(f"{where} continues after its summary")
            if isinstance(event, PromptProgress):
                tell(PromptRead(event), now)
                continue
            if isinstance(event, GenerateResponse):
                if event.token_ids != text.tokens:
                    raise broken_promise(where, "token_ids differs from the streamed tokens")
                summary, text.finish_reason = event, event.finish_reason
                continue  # the connection can be used again only after the response was read to its end
            position = len(text.known)
            expect(where, "position", event.position, position)
            if isinstance(event, GenerateOpenEvent):
                bounds.check_identity(event.identity)
                continue  # its session id is the one that was sent
            if not event.tokens:
                continue
            new = event.tokens
            bounds.check(_PATH, position, new)
            details = bounds.details(_PATH, new, event)
            fused = event.judged is not None and position > prefilled
            judged = [JudgedRound(each.judged, each.accepted) for each in rounds(details.sources)] if fused else ()
            committed = Committed(position, details.sourced(new), details, rounds=judged)
            if position == prefilled:
                tell(PromptCached(event.cached_tokens), now)
            text.known += new
            tell(committed, now)
            yield committed
        if summary is None:
            # A proxy may cut a stream off, for example.
            raise ConnectionLost(f"{where} ended its stream without a summary")
    finally:
        now = clock()
        tell(Served(summary), now)
        tell(Ended(text.finish_reason, traffic.sent - sent_before, traffic.received - received_before), now)
