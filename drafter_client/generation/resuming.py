"""Resume a text after an outage: wait until the verifier is back, then continue after the committed tokens."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field

from drafter_client.errors import ConnectionLost, DrafterError, ModelChanged, OtherModel
from drafter_client.generation.events import Committed, Ended, Listener, Resumed, Waited
from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.client import VerifierClient
from drafter_client.http.outages import Outages, OutageWait
from drafter_client.http.retries import is_outage
from drafter_client.http.text_session import ResponseBounds, TextSession, new_session_id
from specpair.protocol import errors

Run = Generator[Committed, None, None]
# What may come of a request that was made for another model.
_OF_ANOTHER_MODEL = (
    *(ModelChanged, errors.FusedUnavailable, errors.InvalidRequest, errors.PromptTooLong),
    *(errors.TokenOutOfRange, errors.TooManyDrafts),
)


def resuming(
    attempt: Callable[[], Run],
    text: TextSession,
    bounds: Callable[[], ResponseBounds],
    tell: Listener,
    client: VerifierClient,
    outages: Outages,
    clock: Callable[[], float],
    goes_on_after: Callable[[Exception], bool],
) -> Run:
    """Yield the tokens of an attempt at a text; after an outage, those of a new attempt once the verifier is ready, or
    at once if another verifier is ready.

    `attempt()` begins to generate what follows `text.known`, at the verifier of `client`.
    `client`: a connection to the verifier, which moves to others; further ones for health checks are made from it. If
        `text.stop` aborts it, or ends the waiting, the run ends without a finish reason.
    `goes_on_after`: takes an error that another model of the verifier may explain. Returns whether a further attempt is
        to be made; False: the text is complete. Raises the error that ends the text.

    Raises the error of an attempt if that is no outage, or if the outage lasts longer than the patience. All committed
    tokens that the drafter knows have been yielded by then.
    """
    with client.aborted_by(text.stop), closing(_Resumption(text, bounds, tell, client, outages, clock)) as resumption:
        while True:
            try:
                failure: Exception | None = None
                resumption.begin()
                try:
                    with _naming_other_models(client), closing(attempt()) as run:
                        for committed in run:
                            resumption.came(committed)
                            yield committed
                            if resumption.leaves():
                                break
                        else:
                            return
                    yield from text.news()
                except Exception as error:
                    if not is_outage(error):
                        raise
                    failure = error
                if not resumption.may_go_on(failure):
                    return
            except OtherModel:  # the others were waited for
                raise
            except _OF_ANOTHER_MODEL as error:
                if not goes_on_after(error):
                    return
                resumption.close()


@dataclass(slots=True)
class _Resumption:
    """State of the attempts at one text; decides what follows an attempt. The arguments: as in `resuming`."""

    _text: TextSession
    _bounds: Callable[[], ResponseBounds]
    _tell: Listener
    _client: VerifierClient
    _outages: Outages
    _clock: Callable[[], float]
    _outage: OutageWait | None = None  # since the last token
    _reconnected: bool = False  # whether an attempt was repeated for a closed idle connection
    _moved: bool = False  # whether another verifier was moved to since the last token
    _got_tokens: bool = False  # whether the present attempt has brought tokens
    _faulty: set[VerifierAddress] = field(default_factory=set)  # whose engine has failed since the last token

    def begin(self) -> None:
        self._got_tokens = False

    def came(self, committed: Committed) -> None:
        text = self._text
        if self._outage is not None or self._moved:
            if committed.position > len(text.prompt_ids):
                text.outages += 1
                self._tell(Resumed(committed.position - len(text.prompt_ids)), self._clock())
            if self._outage is not None:
                self._outage.end(True)
            self._outage, self._moved = None, False
        elif not self._got_tokens and self._outages.present is not None:  # another text gave up waiting
            self._outages.answered()
        self._got_tokens = True
        self._faulty.clear()
        if self._client.others is not None:
            self._client.others.served(self._client.address)

    def leaves(self) -> bool:
        """Leave a verifier that drains, if another one is ready and the text is not complete. Returns whether it was
        left."""
        client, text = self._client, self._text
        if client.others is None or self._bounds().finish_reason(text.known) is not None:
            return False
        with closing(client.another(alone=True)) as former:
            if not client.others.leave(client):
                return False
            with suppress(errors.SpecPairError, DrafterError):
                former.release(text.session_id)
        return True

    def may_go_on(self, failure: Exception | None) -> bool:
        """Wait until a further attempt can be made. Returns False if the text is over or no more of it is wanted.

        `failure`: the outage that ended the attempt; None: its verifier was left.

        Raises `failure` if no further attempt is to be made, and what looking at the verifiers raises.
        """
        text, client = self._text, self._client
        text.check_complete(self._bounds())
        if text.finish_reason is not None:  # only the end of the response was lost
            self._tell(Ended(text.finish_reason), self._clock())
            return False
        if text.stop.is_set(above=False):  # by which `client` was aborted; the session is released
            return False
        first = self._outage is None and not (self._got_tokens or self._reconnected)
        if first and isinstance(failure, ConnectionLost):  # the verifier may have closed an idle connection
            self._reconnected = True
            return True
        text.opened = False  # a lost verifier cannot release the session
        if isinstance(failure, (errors.ModelLoading, errors.ShuttingDown)):
            text.session_id = new_session_id()  # by the old one, a router would lead there again
        if isinstance(failure, errors.EngineError) and client.others is not None:
            if client.address in self._faulty:  # it is the text that no engine can go on with
                raise failure
            self._faulty.add(client.address)
        if failure is None or client.moved_after(failure):
            self._moved = True
            return True
        first, lost_at = self._outage is None, self._clock()
        self._outage = self._outage or self._outages.begin(text.stop, failure, begun=bool(text.tokens))
        try:
            with closing(client.another()) as health_client, text.stop.breaking(health_client.abort):
                ready = self._outage.until_ready(failure, health_client.look)
                client.move_to(health_client.address)
        finally:  # a wait that ends with an error counts, too
            self._tell(Waited(self._clock() - lost_at, first), self._clock())
            self._tell(Ended(None), self._clock())
        return ready

    def close(self) -> None:
        """End the wait, and forget what the attempts have shown."""
        outage, self._outage = self._outage, None
        if outage is not None:
            outage.end(False)
        self._reconnected = self._moved = False
        self._faulty.clear()


@contextmanager
def _naming_other_models(client: VerifierClient) -> Iterator[None]:
    """A context that raises OtherModel if the verifier of `client` turns out to serve another model, and others may go
    on with the text."""
    try:
        yield
    except _OF_ANOTHER_MODEL as error:
        if client.others is None:
            raise
        with closing(client.another(alone=True)) as asking:
            info = asking.model()
        if not client.others.serves(client.address, info):
            raise
        raise OtherModel(f"the verifier at {client.address} serves {info.name}: {error}") from error


@contextmanager
def released(client: VerifierClient, text: TextSession) -> Iterator[TextSession]:
    """Yield `text`; when the block is left, release its session if the verifier may hold it.

    Errors of the release are ignored: the session expires on the verifier.
    """
    try:
        yield text
    finally:
        if text.opened:
            with suppress(errors.SpecPairError, DrafterError):
                client.release(text.session_id)
