"""Several verifiers of one model: looks at each, chooses one for a text, and moves clients between them."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress

from drafter_client.errors import DrafterError, ModelChanged, OtherModel, VerifierUnreachable
from drafter_client.http import retries
from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.client import VerifierClient
from drafter_client.http.health import PooledVerifier, VerifierStatus, difference
from drafter_client.http.outages import Health, Outages
from specpair.protocol.errors import BadGateway, ShuttingDown, SpecPairError
from specpair.protocol.service_responses import ModelInfo

LOOK_PAUSE = 2.0  # seconds between looks at a verifier
_FIRST_LOOKS = 1.0  # seconds for which the first choice waits for all verifiers, as long as one is ready
_FASTER = 0.8  # a new text leaves the verifier of the last one for another whose cost is below this share


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
        """
        self._notice, self._clock = notice, clock
        self._changed = threading.Condition()  # guards what follows
        self._known = {each: PooledVerifier(each) for each in addresses}
        self._all = [*self._known.values()]
        self._model: ModelInfo | None = None  # whose texts these are; None: it is not known yet
        self._present: PooledVerifier | None = None  # that of the last text
        self._untold: list[str] = []  # what has happened to verifiers, in words
        self._closed = False
        self._looks = [(each, first.another(each.address, alone=True)) for each in self._all]  # a client looks at one
        self._threads = [
            threading.Thread(target=self._watch, args=look, name="verifier", daemon=True) for look in self._looks
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
        for each, client in self._looks:
            each.due.set()
            client.abort()
        for thread in self._threads:
            thread.join()
        for _, client in self._looks:
            client.close()

    def wait_until_ready(self, on_wait: Callable[[float | None], None] | None = None) -> None:
        """Wait until a verifier is ready. The first ready one in the list determines the model of the texts.

        `on_wait`: called while the models are loaded, with the progress of one.

        Raises DrafterError if none is ready, and none loads its model or takes too long to do so.
        """
        began = self._clock()
        while True:
            with self._state():
                seconds = self._clock() - began
                looked = all(each.looked for each in self._all)
                ready = [each for each in self._all if each.ready]
                loading = self._loading()
                if ready and (looked or seconds > _FIRST_LOOKS):
                    self._model = ready[0].info
                    self._compare()
                    return
                if looked and not loading and not ready:
                    raise VerifierUnreachable(f"no verifier is ready: {self._whys()}")
                if seconds > retries.LOADING_PATIENCE:
                    raise DrafterError(f"no verifier is ready after {seconds:.0f} s: {self._whys()}")
                self._changed.wait(retries.CHECK_PAUSE)
            if loading and on_wait is not None:
                on_wait(loading[0])

    def chosen(self) -> VerifierAddress:
        """Where a new text goes: the fastest that is usable; if all have changed to another model, the fastest of
        these; if none is usable, that of the last text."""
        with self._state():
            usable = self._usable()
            if not usable and self._all_changed():
                usable = [each for each in self._all if each.changed]
            if not usable:
                return (self._present or self._all[0]).address
            best = min(usable, key=lambda each: each.cost)
            if self._present in usable and best.cost > _FASTER * self._present.cost:
                best = self._present
            best.begun += 1
            self._present = best
            return best.address

    def of(self, address: VerifierAddress) -> tuple[ModelInfo | None, float]:
        """What the verifier at `address` serves, if that is known, and the round trip to it (s)."""
        with self._state():
            return self._known[address].info, self._known[address].link

    @property
    def states(self) -> list[VerifierStatus]:
        with self._state():
            usable = self._usable()
            return [VerifierStatus(each.address, "" if each in usable else each.why, each.link) for each in self._all]

    @property
    def outage(self) -> Health | None:
        with self._state():
            return None if self._usable() or self._all_changed() else self._away()

    def served(self, address: VerifierAddress) -> None:
        with self._state():
            self._known[address].failures = 0

    def serves(self, address: VerifierAddress, info: ModelInfo) -> bool:
        """Note what the verifier at `address` says that it serves. Returns whether others may go on with its texts, as
        it serves another model and not all of them do."""
        with self._state():
            each = self._known[address]
            each.info, each.refusal = info, ""
            self._compare()
            return bool(each.differs) and not self._all_changed()

    def changed(self, address: VerifierAddress) -> VerifierAddress | None:
        """If all verifiers have changed to another model, one that serves it, `address` preferred; else None."""
        with self._state():
            if not self._all_changed():
                return None
            changed = [each.address for each in self._all if each.changed]
            return address if address in changed else changed[0]

    def adopt(self, info: ModelInfo) -> None:
        with self._state():
            self._model = info
            self._compare()

    def moved(self, client: VerifierClient, error: Exception) -> bool:
        """See `client.VerifierFailover`."""
        if not retries.moves_on(error):
            return False
        with self._state():
            self._failed(self._known[client.address], error)
            return self._move(client)

    def look(self, client: VerifierClient) -> Health:
        """See `client.VerifierFailover`. Raises ModelChanged if all verifiers have changed to another model, and
        DrafterError if waiting mends none of them."""
        with self._state():
            own = self._known[client.address]
            if (own in self._usable() and not own.failures) or self._move(client):
                return Health(True)
            if self._none_helps():
                kind = ModelChanged if self._all_changed() else DrafterError
                raise kind(f"no verifier can continue the text: {self._whys()}")
            return self._away()

    def leave(self, client: VerifierClient) -> bool:
        """See `client.VerifierFailover`."""
        with self._state():
            return self._known[client.address].health.draining and self._move(client)

    def _move(self, client: VerifierClient) -> bool:
        """Move `client` to the fastest of the verifiers that are usable and have failed least often in a row. Returns
        whether there is one."""
        best = min(self._usable(), key=lambda each: (each.failures, each.cost), default=None)
        if best is not None:
            best.begun += 1
            client.move_to(best.address)
        return best is not None

    def _usable(self) -> list[PooledVerifier]:
        now = self._clock()
        ready = [each for each in self._all if each.ready and each.out_until <= now]
        return [each for each in ready if not each.health.overloaded] or ready

    def _all_changed(self) -> bool:
        """Whether only verifiers that changed the model could be used."""
        return self._none_helps() and any(each.changed for each in self._all)

    def _none_helps(self) -> bool:
        return all(each.refusal or each.changed for each in self._all)

    def _loading(self) -> list[float]:
        return [each.health.progress for each in self._all if each.health.progress is not None]

    def _away(self) -> Health:
        return Health(False, self._whys(), max(self._loading(), default=None))

    def _whys(self) -> str:
        return "; ".join(f"{each.address}: {each.why}" for each in self._all)

    def _failed(self, each: PooledVerifier, error: Exception) -> None:
        """Note that a request to the verifier failed, and when it may be chosen again."""
        each.failures += 1
        each.failed_at = now = self._clock()
        asked = retries.asked_pause(error)
        if asked is None:
            asked = 0.0 if each.failures == 1 else retries.growing_pause(each.failures)
        each.out_until = now + asked
        if not isinstance(error, (*retries.REFUSED_FOR_NOW, OtherModel)):  # these say nothing of its health
            why = "nothing answers" if isinstance(error, retries.SILENT) else str(error)
            self._found(each, Health(False, why, draining=isinstance(error, ShuttingDown)), each.refusal)
            each.due.set()

    def _found(self, each: PooledVerifier, health: Health, refusal: str) -> None:
        before = each.ready
        each.health, each.refusal = health, refusal
        self._compare()
        if each.ready and not before and each.looked:
            self._untold.append(f"the verifier at {each.address} is ready")
        elif not (each.ready or each.changed) and (before or not each.looked):
            state = "not taken" if refusal else "away"
            self._untold.append(f"the verifier at {each.address} is {state}: {each.why}")

    def _compare(self) -> None:
        for each in self._all:
            if self._model is not None and each.info is not None:
                differs = difference(each.info, self._model)
                if differs and differs != each.differs:
                    self._untold.append(f"the verifier at {each.address} is not taken: {differs}")
                each.differs = differs

    @contextmanager
    def _state(self) -> Iterator[None]:
        """A context in which one thread reads and changes the state; then `notice` is called."""
        try:
            with self._changed:
                yield
        finally:
            with self._changed:
                news, self._untold = self._untold, []
            for each in news:
                self._notice(each)

    def _watch(self, each: PooledVerifier, client: VerifierClient) -> None:
        while not self._closed:
            each.due.clear()
            self._look_at(each, client)
            with self._changed:
                pause = LOOK_PAUSE if self._usable() else retries.CHECK_PAUSE
            each.due.wait(pause)

    def _look_at(self, each: PooledVerifier, client: VerifierClient) -> None:
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
        with self._state():
            if self._closed or each.failed_at > asked:  # a text has learnt more since
                return
            if health.ready and link is not None:
                each.links.append(link)
            each.info, each.begun = info, 0
            self._found(each, health, refusal)
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
