"""Resume a text after an outage: wait until the verifier is back, then continue after the committed tokens."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress

from drafter_client.errors import DrafterError
from drafter_client.generation.events import Committed, Ended, Listener, Resumed, Waited
from drafter_client.generation.text_session import TextSession, new_session_id
from drafter_client.http.addresses import Address
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Outages, OutageWait
from drafter_client.http.responses import ResponseBounds
from drafter_client.http.retries import is_outage, may_be_idle_close
from specpair.protocol.errors import EngineError, ModelLoading, ShuttingDown, SpecPairError

Run = Generator[Committed, None, None]


def resuming(
    attempt: Callable[[], Run],
    text: TextSession,
    bounds: Callable[[], ResponseBounds],
    tell: Listener,
    client: VerifierClient,
    outages: Outages,
    clock: Callable[[], float],
) -> Run:
    """Yield the tokens of an attempt at a text; after an outage, those of a new attempt once the verifier is ready, or
    at once if there is another one that is.

    `attempt()` begins to generate what follows `text.known`, at the verifier of `client`.
    `bounds`: show whether the text was complete before the outage.
    `tell`: takes the events of the waiting.
    `client`: a connection to the verifier, which moves to others; further ones for health checks are made from it.
    `outages`: does the waiting.
    `clock`: returns seconds. If `text.stop` ends the waiting or aborts `client`, the run ends without a finish reason.

    Raises the error of an attempt if that is no outage, or if the outage lasts longer than the patience. All committed
    tokens that the drafter knows have been yielded by then.
    """
    outage: OutageWait | None = None
    reconnected = moved = False
    faulty: set[Address] = set()  # of several verifiers, those whose engine has failed since the last token
    try:
        while True:
            got_tokens = left = False
            failure: Exception | None = None
            try:
                with closing(attempt()) as run:
                    for committed in run:
                        if outage is not None or moved:
                            if committed.position > len(text.prompt_ids):
                                text.outages += 1
                                tell(Resumed(committed.position - len(text.prompt_ids)), clock())
                            if outage is not None:
                                outage.end(True)
                            outage, moved = None, False
                        elif not got_tokens and outages.present is not None:  # another text gave up waiting
                            outages.answered()
                        got_tokens = True
                        faulty.clear()
                        yield committed
                        left = bounds().finish_reason(text.known) is None and _left(client, text)
                        if left:
                            break
                if not left:
                    return
                yield from text.news()
            except Exception as error:
                if not is_outage(error):
                    raise
                failure = error
            text.check_complete(bounds())
            if text.finish_reason is not None:  # only the end of the response was lost
                tell(Ended(text.finish_reason), clock())
                return
            if text.stop.is_set(above=False):  # by which `client` was aborted; the session is released
                return
            if may_be_idle_close(failure, outage is None and not (got_tokens or reconnected)):
                reconnected = True
                continue
            text.opened = False  # a lost verifier cannot release the session
            if isinstance(failure, (ModelLoading, ShuttingDown)):  # by the old one, a router would lead there again
                text.session_id = new_session_id()
            if isinstance(failure, EngineError) and client.others is not None:
                if client.address in faulty:  # it is the text that no engine can go on with
                    raise failure
                faulty.add(client.address)
            if failure is None or client.moved_after(failure):
                moved = True
                continue
            first, lost_at = outage is None, clock()
            outage = outage or outages.begin(text.stop, failure, begun=bool(text.tokens))
            try:
                with closing(client.another()) as health_client, text.stop.breaking(health_client.abort):
                    ready = outage.until_ready(failure, health_client.look)
                    client.move_to(health_client.address)
            finally:  # a wait that ends with an error counts, too
                tell(Waited(clock() - lost_at, first), clock())
                tell(Ended(None), clock())
            if not ready:
                return
    finally:
        if outage is not None:
            outage.end(False)


def _left(client: VerifierClient, text: TextSession) -> bool:
    """Leave a verifier that drains, if another one is ready. Returns whether it was left."""
    if client.others is None:
        return False
    with closing(client.another(alone=True)) as former:
        if not client.others.leave(client):
            return False
        with suppress(SpecPairError, DrafterError):
            former.release(text.session_id)
    return True


@contextmanager
def released(client: VerifierClient, text: TextSession) -> Iterator[TextSession]:
    """Yield `text`; when the block is left, release its session if the verifier may hold it.

    Errors of the release are ignored: the session expires on the verifier.
    """
    try:
        yield text
    finally:
        if text.opened:
            with suppress(SpecPairError, DrafterError):
                client.release(text.session_id)
