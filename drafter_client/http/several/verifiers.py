"""Several verifiers of one model: what is known of each, which one a text goes to, and where it goes on."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from drafter_client.errors import (
    ConnectionLost,
    DrafterError,
    ModelChanged,
    OtherModel,
    VerifierTimeout,
    VerifierUnreachable,
)
from drafter_client.http import retries
from drafter_client.http.addresses import Address
from drafter_client.http.client import VerifierClient
from drafter_client.http.health import Health
from specpair.balancing.candidate import queue_time
from specpair.protocol.errors import ShuttingDown, SpecPairError
from specpair.protocol.identity import continues
from specpair.protocol.service_responses import ModelInfo

LOOK_PAUSE = 2.0  # seconds between looks at a verifier
_FIRST_LOOKS = 1.0  # seconds for which the first choice waits for all verifiers, as long as one is ready
_FASTER = 0.8  # a new text leaves the verifier of the last one for another whose cost is below this share
_LINKS = 5  # round trips that are kept: the shortest is nearest to the link's own
_SILENT = (ConnectionLost, VerifierUnreachable, VerifierTimeout)
_LONG_AGO = float("-inf")
_IN_VAIN = "asked in vain"
_UNKNOWN = Health(False, "nothing is known of it yet")


@dataclass(slots=True, eq=False)
class _Verifier:
    """What is known of one verifier. Times are seconds."""

    address: Address
    client: VerifierClient  # of the thread that looks at it
    health: Health = _UNKNOWN
    info: ModelInfo | None = None  # what it serves
    refusal: str = ""  # why waiting for it is in vain, such as that it wants another key; empty: it may not be
    differs: str = ""  # what it serves, if that is another model
    looked: bool = False
    begun: int = 0  # texts that have gone there since the last look
    failures: int = 0  # requests in a row
    failed_at: float = _LONG_AGO
    out_until: float = _LONG_AGO
    links: deque[float] = field(default_factory=lambda: deque(maxlen=_LINKS))
    due: threading.Event = field(default_factory=threading.Event)  # set: look now

    @property
    def link(self) -> float:
        """The round trip."""
        return min(self.links, default=0.0)

    @property
    def cost(self) -> float:
        """Seconds until a draft of one more text is judged."""
        if self.info is None:
            return self.link
        texts, slots = self.health.load.texts + self.begun, max(1, self.info.rows)
        return queue_time(self.link, self.info.pass_times, slots, texts, self.health.load.waiting)

    @property
    def ready(self) -> bool:
        return self.health.ready and not self.refusal and not self.differs

    @property
    def changed(self) -> bool:
        """Whether it is ready with another model."""
        return self.health.ready and bool(self.differs)

    @property
    def why(self) -> str:
        """Why it is not ready."""
        return self.refusal or (self.changed and self.differs) or self.health.why


class VerifierState(NamedTuple):
    """What a drafter knows of a verifier."""

    address: Address
    why: str  # why no new text goes there; empty: it is ready
    round_trip: float  # seconds, the shortest of the last ones


class Verifiers:
    """The verifiers of one pair, each looked at by a thread of its own. May be used from any thread."""

    def __init__(
        self,
        first: VerifierClient,
        addresses: Sequence[Address],
        notice: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`first`: clients are made from it.
        `notice`: is told when a verifier goes away, is back, or serves another model.
        `clock`: returns seconds.
        """
        self._notice, self._clock = notice, clock
        self._untold: list[str] = []
        self._changed = threading.Condition()  # guards all that is known
        self._known = {each: _Verifier(each, first.another(each, alone=True)) for each in addresses}
        self._model: ModelInfo | None = None  # whose texts these are; None: it is not known yet
        self._present: _Verifier | None = None  # that of the last text
        self._closed = False
        self._threads = [
            threading.Thread(target=self._watch, args=(each,), name="verifier", daemon=True)
            for each in self._known.values()
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the threads, and close their connections."""
        with self._changed:
            self._closed = True
        for each in self._known.values():
            each.due.set()
            each.client.abort()
        for thread in self._threads:
            thread.join()
        for each in self._known.values():
            each.client.close()

    def wait_until_ready(self, on_wait: Callable[[float | None], None] | None = None) -> None:
        """Return when a verifier is ready. Of those that are, the first in the list says whose texts these are.

        `on_wait`: called while the models are loaded, with the progress of one.

        Raises DrafterError if none is ready, and none loads its model or takes too long to do so.
        """
        began = self._clock()
        while True:
            with self._state():
                seconds = self._clock() - began
                looked = all(each.looked for each in self._known.values())
                ready = [each for each in self._known.values() if each.ready]
                if ready and (looked or seconds > _FIRST_LOOKS):
                    self._model = ready[0].info
                    self._compare()
                    return
                loading = [each.health.progress for each in self._known.values() if each.health.progress is not None]
                if looked and not loading and not ready:
                    raise VerifierUnreachable(f"no verifier is ready: {self._each_why()}")
                if seconds > retries.LOADING_PATIENCE:
                    raise DrafterError(f"no verifier is ready after {seconds:.0f} s: {self._each_why()}")
                if not (ready or loading):
                    self._changed.wait(_FIRST_LOOKS)
                    continue
                self._changed.wait(retries.CHECK_PAUSE)
            if loading and on_wait is not None:
                on_wait(loading[0])

    def chosen(self) -> Address:
        """Where a new text goes: to the fastest verifier that is ready; if all have changed to another model, to one of
        these; if none is ready, to that of the last text."""
        with self._state():
            usable = self._usable()
            if not usable and self._all_changed():
                usable = [each for each in self._known.values() if each.changed]
            if not usable:
                return (self._present or next(iter(self._known.values()))).address
            best = min(usable, key=lambda each: each.cost)
            if self._present in usable and best.cost > _FASTER * self._present.cost:
                best = self._present
            best.begun += 1
            self._present = best
            return best.address

    def of(self, address: Address) -> tuple[ModelInfo | None, float]:
        """What the verifier at `address` serves, if that is known, and the round trip to it (s)."""
        with self._state():
            return self._known[address].info, self._known[address].link

    @property
    def states(self) -> list[VerifierState]:
        """What is known of each."""
        with self._state():
            usable = self._usable()
            return [
                VerifierState(each.address, "" if each in usable else each.why or _IN_VAIN, each.link)
                for each in self._known.values()
            ]

    @property
    def outage(self) -> Health | None:
        """Why no text can begin now; None: one can."""
        with self._state():
            return None if self._usable() or self._all_changed() else self._away()

    def served(self, address: Address) -> None:
        """Note that the verifier at `address` answers a text."""
        with self._state():
            self._known[address].failures = 0

    def serves(self, address: Address, info: ModelInfo) -> bool:
        """Note what the verifier at `address` says that it serves. Returns whether others may go on with its texts, as
        it serves another model and not all of them do."""
        with self._state():
            each = self._known[address]
            each.info, each.refusal = info, ""
            self._compare()
            return bool(each.differs) and not self._all_changed()

    def changed(self, address: Address) -> Address | None:
        """If all verifiers have changed to another model, one that serves it, rather that at `address`; else None."""
        with self._state():
            if not self._all_changed():
                return None
            changed = [each.address for each in self._known.values() if each.changed]
            return address if address in changed else changed[0]

    def adopt(self, info: ModelInfo) -> None:
        """Note whose texts these are from now on."""
        with self._state():
            self._model = info
            self._compare()

    def moved(self, client: VerifierClient, error: Exception) -> bool:
        """See `client.Others`."""
        if not retries.moves_on(error):
            return False
        with self._state():
            self._failed(self._known[client.address], error)
            return self._move(client)

    def look(self, client: VerifierClient) -> Health:
        """See `client.Others`. Raises ModelChanged if all verifiers have changed to another model, and DrafterError if
        waiting mends none of them."""
        with self._state():
            own = self._known[client.address]
            if (own in self._usable() and not own.failures) or self._move(client):
                return Health(True)
            if all(each.refusal or each.changed for each in self._known.values()):
                kind = ModelChanged if self._all_changed() else DrafterError
                raise kind(f"no verifier can go on with the text: {self._each_why()}")
            return self._away()

    def leave(self, client: VerifierClient) -> bool:
        """See `client.Others`."""
        with self._state():
            return self._known[client.address].health.draining and self._move(client)

    def _usable(self) -> list[_Verifier]:
        now = self._clock()
        ready = [each for each in self._known.values() if each.ready and each.out_until <= now]
        return [each for each in ready if not each.health.load.overloaded] or ready

    def _move(self, client: VerifierClient) -> bool:
        """Move `client` to a verifier that is ready: of those that have failed least often in a row, the fastest.
        Returns whether there is one."""
        best = min(self._usable(), key=lambda each: (each.failures, each.cost), default=None)
        if best is None:
            return False
        best.begun += 1
        client.move_to(best.address)
        return True

    def _all_changed(self) -> bool:
        known = self._known.values()
        return all(each.refusal or each.changed for each in known) and any(each.changed for each in known)

    def _away(self) -> Health:
        progress = [each.health.progress for each in self._known.values() if each.health.progress is not None]
        return Health(False, self._each_why(), max(progress, default=None))

    def _each_why(self) -> str:
        return "; ".join(f"{each.address}: {each.why or _IN_VAIN}" for each in self._known.values())

    def _failed(self, each: _Verifier, error: Exception) -> None:
        now = self._clock()
        each.failures += 1
        each.failed_at, each.out_until = now, now + retries.out_for(error, each.failures)
        if not isinstance(error, (*retries.REFUSED_FOR_NOW, OtherModel)):
            why = "nothing answers" if isinstance(error, _SILENT) else str(error)
            self._found(each, Health(False, why, draining=isinstance(error, ShuttingDown)), each.refusal)
            each.due.set()

    def _found(self, each: _Verifier, health: Health, refusal: str) -> None:
        """Note the health of a verifier, and whether it refuses us."""
        before = each.ready
        each.health, each.refusal = health, refusal
        self._compare()
        if each.ready and not before and each.looked:
            self._untold.append(f"the verifier at {each.address} is ready")
        elif not (each.ready or each.changed) and (before or not each.looked):
            state = "not taken" if refusal else "away"
            self._untold.append(f"the verifier at {each.address} is {state}: {each.why}")

    def _compare(self) -> None:
        """Note which verifiers serve another model."""
        for each in self._known.values():
            if self._model is not None and each.info is not None:
                differs = _difference(each.info, self._model)
                if differs and differs != each.differs:
                    self._untold.append(f"the verifier at {each.address} is not taken: {differs}")
                each.differs = differs

    @contextmanager
    def _state(self) -> Iterator[None]:
        """A context in which one thread reads and changes what is known; after it, others are told."""
        try:
            with self._changed:
                yield
        finally:
            with self._changed:
                untold, self._untold = self._untold, []
            for each in untold:
                self._notice(each)

    def _watch(self, each: _Verifier) -> None:
        while not self._closed:
            each.due.clear()
            self._look_at(each)
            with self._changed:
                pause = LOOK_PAUSE if self._usable() else retries.CHECK_PAUSE
            each.due.wait(pause)

    def _look_at(self, each: _Verifier) -> None:
        with suppress(DrafterError):  # the health says so, too
            each.client.connection.connect()  # takes a round trip, which must not be measured
        asked, info, refusal = self._clock(), each.info, ""
        link = None
        try:
            health = each.client.health()
            link = self._clock() - asked
            if health.ready and (info is None or health.identity != info.identity):
                info = each.client.model()
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


def _difference(theirs: ModelInfo, ours: ModelInfo) -> str:
    """What `theirs` is, in words that tell it from `ours`; empty if a text of one can go on with the other."""
    if continues(theirs.identity, ours.identity):
        return ""
    if theirs.name != ours.name:
        return f"it serves {theirs.name}, and the texts are those of {ours.name}"
    what = "another vocabulary" if theirs.vocabulary != ours.vocabulary else "other weights or another way to sample"
    return f"it serves {theirs.name} with {what}"
