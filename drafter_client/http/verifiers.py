"""Looks at several verifiers, and moves clients between them."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress

from drafter_client.errors import DrafterError, ModelChanged, VerifierUnreachable
from drafter_client.http import retries
from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.client import VerifierClient
from drafter_client.http.health import Health
from drafter_client.http.outages import Outages
from drafter_client.http.roster import Roster, VerifierStatus
from specpair.protocol.errors import BadGateway, SpecPairError
from specpair.protocol.service_responses import ModelInfo

LOOK_PAUSE = 2.0  # seconds between looks at a verifier
_FIRST_LOOKS = 1.0  # seconds for which the first choice waits for all verifiers, as long as one is ready


class _Looking:
    """The thread that looks at one verifier."""

    def __init__(self, client: VerifierClient, watch: Callable[["_Looking"], None]) -> None:
        self.client = client
        self.due = threading.Event()  # set: look now
        self.thread = threading.Thread(target=watch, args=(self,), name="verifier", daemon=True)


class Verifiers:
    """The verifiers of one pair, each looked at by a thread of its own. May be used from any thread."""

    def __init__(
        self,
        first: VerifierClient,
        addresses: Sequence[VerifierAddress],
        notice: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`first`: clients are made from it.
        `notice`: is told when a verifier goes away, is back, or serves another model.
        `clock`: returns seconds.
        """
        self._notice, self._clock = notice, clock
        self._changed = threading.Condition()  # guards the roster
        self._roster = Roster(addresses)
        self._closed = False
        self._looking = {each: _Looking(first.another(each, alone=True), self._watch) for each in addresses}
        for each in self._looking.values():
            each.thread.start()

    def close(self) -> None:
        """End the threads, and close their connections."""
        with self._changed:
            self._closed = True
        for each in self._looking.values():
            each.due.set()
            each.client.abort()
        for each in self._looking.values():
            each.thread.join()
            each.client.close()

    def wait_until_ready(self, on_wait: Callable[[float | None], None] | None = None) -> None:
        """Return when a verifier is ready. Of those that are, the first in the list says whose texts these are.

        `on_wait`: called while the models are loaded, with the progress of one.

        Raises DrafterError if none is ready, and none loads its model or takes too long to do so.
        """
        began = self._clock()
        while True:
            with self._state() as roster:
                seconds = self._clock() - began
                looked = all(each.looked for each in roster.all)
                ready, loading = roster.ready, roster.loading
                if ready and (looked or seconds > _FIRST_LOOKS):
                    roster.adopt(ready[0].info)
                    return
                if looked and not loading and not ready:
                    raise VerifierUnreachable(f"no verifier is ready: {roster.whys}")
                if seconds > retries.LOADING_PATIENCE:
                    raise DrafterError(f"no verifier is ready after {seconds:.0f} s: {roster.whys}")
                if not (ready or loading):
                    self._changed.wait(_FIRST_LOOKS)
                    continue
                self._changed.wait(retries.CHECK_PAUSE)
            if loading and on_wait is not None:
                on_wait(loading[0])

    def chosen(self) -> VerifierAddress:
        """Where a new text goes: see `Roster.for_new_text`."""
        with self._state() as roster:
            return roster.for_new_text(self._clock())

    def of(self, address: VerifierAddress) -> tuple[ModelInfo | None, float]:
        """What the verifier at `address` serves, if that is known, and the round trip to it (s)."""
        with self._state() as roster:
            return roster.known[address].info, roster.known[address].link

    @property
    def states(self) -> list[VerifierStatus]:
        """What is known of each."""
        with self._state() as roster:
            return roster.states(self._clock())

    @property
    def outage(self) -> Health | None:
        """Why no text can begin now; None: one can."""
        with self._state() as roster:
            return None if roster.usable(self._clock()) or roster.all_changed else roster.away

    def served(self, address: VerifierAddress) -> None:
        """Note that the verifier at `address` answers a text."""
        with self._state() as roster:
            roster.known[address].failures = 0

    def serves(self, address: VerifierAddress, info: ModelInfo) -> bool:
        """Note what the verifier at `address` says that it serves. Returns whether others may go on with its texts, as
        it serves another model and not all of them do."""
        with self._state() as roster:
            roster.serves(address, info)
            return bool(roster.known[address].differs) and not roster.all_changed

    def changed(self, address: VerifierAddress) -> VerifierAddress | None:
        """If all verifiers have changed to another model, one that serves it, rather that at `address`; else None."""
        with self._state() as roster:
            if not roster.all_changed:
                return None
            changed = [each.address for each in roster.all if each.changed]
            return address if address in changed else changed[0]

    def adopt(self, info: ModelInfo) -> None:
        """Note whose texts these are from now on."""
        with self._state() as roster:
            roster.adopt(info)

    def moved(self, client: VerifierClient, error: Exception) -> bool:
        """See `client.Others`."""
        if not retries.moves_on(error):
            return False
        with self._state() as roster:
            if roster.failed(client.address, error, self._clock()):
                self._looking[client.address].due.set()
            return self._move(client)

    def look(self, client: VerifierClient) -> Health:
        """See `client.Others`. Raises ModelChanged if all verifiers have changed to another model, and DrafterError if
        waiting mends none of them."""
        with self._state() as roster:
            own = roster.known[client.address]
            if (own in roster.usable(self._clock()) and not own.failures) or self._move(client):
                return Health(True)
            if roster.none_helps:
                kind = ModelChanged if roster.all_changed else DrafterError
                raise kind(f"no verifier can go on with the text: {roster.whys}")
            return roster.away

    def leave(self, client: VerifierClient) -> bool:
        """See `client.Others`."""
        with self._state() as roster:
            return roster.known[client.address].health.draining and self._move(client)

    def _move(self, client: VerifierClient) -> bool:
        """Move `client` to a verifier that is ready, if any is. Returns whether one is."""
        address = self._roster.for_text_under_way(self._clock())
        if address is not None:
            client.move_to(address)
        return address is not None

    @contextmanager
    def _state(self) -> Iterator[Roster]:
        """A context in which one thread reads and changes what is known; after it, others are told."""
        try:
            with self._changed:
                yield self._roster
        finally:
            with self._changed:
                news = self._roster.news()
            for each in news:
                self._notice(each)

    def _watch(self, looking: _Looking) -> None:
        while not self._closed:
            looking.due.clear()
            self._look_with(looking.client)
            with self._changed:
                pause = LOOK_PAUSE if self._roster.usable(self._clock()) else retries.CHECK_PAUSE
            looking.due.wait(pause)

    def _look_with(self, client: VerifierClient) -> None:
        """Look at a client's verifier, and note what is found."""
        each = self._roster.known[client.address]
        with suppress(DrafterError):  # the health says so, too
            client.connection.connect()  # takes a round trip, which must not be measured
        asked, info, refusal = self._clock(), each.info, ""
        link = None
        try:
            health = client.health()
            link = self._clock() - asked
            if health.ready and (info is None or health.identity != info.identity):
                info = client.model()
        except (DrafterError, SpecPairError) as error:
            health = Health(False, str(error))
            refusal = "" if retries.is_outage(error) else str(error)
        with self._state() as roster:
            if self._closed or each.failed_at > asked:  # a text has learnt more since
                return
            if health.ready and link is not None:
                each.links.append(link)
            each.info, each.begun = info, 0
            roster.found(each, health, refusal)
            each.looked = True
            self._changed.notify_all()


def when_ready(
    client: VerifierClient,
    addresses: Sequence[VerifierAddress],
    notice: Callable[[str], object],
    outages: Outages,
    on_wait: Callable[[float | None], None] | None,
) -> Verifiers | None:
    """Wait until the verifier of `client` is ready; of several `addresses`, until one is, to which `client` moves.
    Returns what looks at several, which is the caller's to close. The other arguments: as for `Verifiers`."""
    if len(addresses) == 1:
        try:
            client.wait_until_ready(on_wait=on_wait)
        except BadGateway:  # its verifier may be restarting; one that was never there is not waited for
            outages.retry_through_outage(
                lambda: client.wait_until_ready(on_wait=on_wait), lambda: client.health(started=False)
            )
        return None
    with ExitStack() as on_failure:
        client.others = verifiers = on_failure.enter_context(closing(Verifiers(client, addresses, notice)))
        verifiers.wait_until_ready(on_wait)
        client.move_to(verifiers.chosen())
        on_failure.pop_all()
    return verifiers
