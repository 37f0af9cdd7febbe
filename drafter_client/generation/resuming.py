"""A text outlives its verifier: when that goes away, it is waited for, and goes on behind the tokens that are known."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial

from drafter_client.errors import ConnectionLost, DrafterError
from drafter_client.generation.observer import Committed
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Outages, is_outage
from drafter_client.http.responses import ModelInfo, ResponseBounds
from drafter_client.metrics.statistics import Stats
from speculation.errors import Overloaded, SpecPairError

Run = Generator[Committed, None, None]


def resuming(
    attempt: Callable[[], Run],
    text: TextSession,
    bounds: ResponseBounds,
    stats: Stats,
    client: VerifierClient,
    target: ModelInfo,
    outages: Outages,
    clock: Callable[[], float],
) -> Run:
    """What attempts at a text yield, the next one begun when the last one has lost the verifier and it is back.

    `attempt()` begins to write what follows `text.tokens`; all of them fill `stats`. `bounds`: of the text. `client`:
    a connection to the verifier, of which further ones are made to see how it is. `target`: what it has to serve when
    it is back. Where `text.stop` ends the waiting,
    this ends without an end of the text. Raises what the attempts raise, if it is no outage or the patience is over:
    by then all that is known of the text has been yielded.
    """
    outage = None
    reconnected = False
    while True:
        brought = False
        try:
            with closing(attempt()) as run:
                for committed in run:
                    brought = True
                    if outage is not None and text.tokens:
                        stats.resumed.append(len(text.tokens))
                    outage = None
                    text.passed_on(committed)
                    yield committed
            return
        except Exception as error:
            if not is_outage(error):
                raise
            failure = error
        stats.finish_reason = stats.finish_reason or (bounds.finish_reason(text.known) if text.tokens else None)
        if stats.finish_reason is not None:  # only the end of the answer was lost
            return
        if isinstance(failure, ConnectionLost) and outage is None and not (brought or reconnected):
            reconnected = True  # an idle connection may have ended long ago: that is no outage
            continue
        lost, text.opened = clock(), False  # nobody is there to release it
        outage = outage or outages.begin(text.stop, unbegun=isinstance(failure, Overloaded) and not text.tokens)
        try:
            with closing(client.another()) as looking, text.stop.breaking(looking.abort):
                ready = outage.until_ready(failure, partial(looking.health, target))
        finally:  # a wait that ends with an error counts, too
            stats.total_ms += 1e3 * (clock() - lost)
        if not ready:
            return


@contextmanager
def released(client: VerifierClient, text: TextSession) -> Iterator[TextSession]:
    """The text, whose session the verifier is told to forget when the block is left, if it may hold it.

    It expires by itself where that fails.
    """
    try:
        yield text
    finally:
        if text.opened:
            with suppress(SpecPairError, DrafterError):
                client.release(text.session_id)
