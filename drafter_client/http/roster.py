"""Several verifiers of one model by what is known of them, and the choice among them: pure, with times as arguments."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from drafter_client.errors import ConnectionLost, OtherModel, VerifierTimeout, VerifierUnreachable
from drafter_client.http import retries
from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.health import Health
from gateway.balancing import queue_time
from specpair.protocol.errors import ShuttingDown
from specpair.protocol.service_responses import ModelInfo, continues

_LINKS = 5  # round trips that are kept: the shortest is nearest to the link's own
_SILENT = (ConnectionLost, VerifierUnreachable, VerifierTimeout)
_LONG_AGO = float("-inf")
_UNKNOWN = Health(False, "nothing is known of it yet")
_IN_VAIN = "asked in vain"


class VerifierStatus(NamedTuple):
    """What a drafter knows of a verifier."""

    address: VerifierAddress
    why: str  # why no new text goes there; empty: it is ready
    round_trip: float  # seconds, the shortest of the last ones


@dataclass(slots=True, eq=False)
class KnownVerifier:
    """One verifier. Times are seconds of one clock."""

    address: VerifierAddress
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
        """Why it is not ready, or not taken although it is."""
        return self.refusal or (self.changed and self.differs) or self.health.why or _IN_VAIN

    def failed(self, error: Exception, now: float) -> Health | None:
        """Note that a request has failed. Returns the health that the error shows; None: it shows nothing of it."""
        self.failures += 1
        self.failed_at, self.out_until = now, now + retries.out_for(error, self.failures)
        if isinstance(error, (*retries.REFUSED_FOR_NOW, OtherModel)):
            return None
        why = "nothing answers" if isinstance(error, _SILENT) else str(error)
        return Health(False, why, draining=isinstance(error, ShuttingDown))


def difference(theirs: ModelInfo, ours: ModelInfo) -> str:
    """What `theirs` is, in words that tell it from `ours`; empty if a text of one can go on with the other."""
    if continues(theirs.identity, ours.identity):
        return ""
    if theirs.name != ours.name:
        return f"it serves {theirs.name}, and the texts are those of {ours.name}"
    what = "another vocabulary" if theirs.vocabulary != ours.vocabulary else "other weights or another way to sample"
    return f"it serves {theirs.name} with {what}"


_FASTER = 0.8  # a new text leaves the verifier of the last one for another whose cost is below this share


class Roster:
    """All verifiers. `now` is in seconds of one clock."""

    def __init__(self, addresses: Iterable[VerifierAddress]) -> None:
        self.known = {each: KnownVerifier(each) for each in addresses}
        self.model: ModelInfo | None = None  # whose texts these are; None: it is not known yet
        self._present: KnownVerifier | None = None  # that of the last text
        self._untold: list[str] = []

    def news(self) -> list[str]:
        """What has happened to verifiers since the last call, in words."""
        untold, self._untold = self._untold, []
        return untold

    @property
    def all(self) -> list[KnownVerifier]:
        return [*self.known.values()]

    @property
    def ready(self) -> list[KnownVerifier]:
        return [each for each in self.all if each.ready]

    @property
    def all_changed(self) -> bool:
        """Whether all that are of any use have changed to another model."""
        return self.none_helps and any(each.changed for each in self.all)

    @property
    def none_helps(self) -> bool:
        """Whether no verifier will go on with a text, however long it waits."""
        return all(each.refusal or each.changed for each in self.all)

    @property
    def loading(self) -> list[float]:
        """How much of their models those have loaded that do so."""
        return [each.health.progress for each in self.all if each.health.progress is not None]

    @property
    def away(self) -> Health:
        """The health of all, none of which is ready."""
        return Health(False, self.whys, max(self.loading, default=None))

    @property
    def whys(self) -> str:
        """Why each is not taken."""
        return "; ".join(f"{each.address}: {each.why}" for each in self.all)

    def usable(self, now: float) -> list[KnownVerifier]:
        """Those that take new texts."""
        ready = [each for each in self.ready if each.out_until <= now]
        return [each for each in ready if not each.health.load.overloaded] or ready

    def states(self, now: float) -> list[VerifierStatus]:
        usable = self.usable(now)
        return [VerifierStatus(each.address, "" if each in usable else each.why, each.link) for each in self.all]

    def for_new_text(self, now: float) -> VerifierAddress:
        """The fastest that is usable; if all have changed to another model, the fastest of these; if none is usable,
        that of the last text."""
        usable = self.usable(now)
        if not usable and self.all_changed:
            usable = [each for each in self.all if each.changed]
        if not usable:
            return (self._present or self.all[0]).address
        best = min(usable, key=lambda each: each.cost)
        if self._present in usable and best.cost > _FASTER * self._present.cost:
            best = self._present
        best.begun += 1
        self._present = best
        return best.address

    def for_text_under_way(self, now: float) -> VerifierAddress | None:
        """Of those that are usable and have failed least often in a row, the fastest; None: none is usable."""
        best = min(self.usable(now), key=lambda each: (each.failures, each.cost), default=None)
        if best is None:
            return None
        best.begun += 1
        return best.address

    def adopt(self, info: ModelInfo | None) -> None:
        """Note whose texts these are from now on."""
        self.model = info
        self._compare()

    def serves(self, address: VerifierAddress, info: ModelInfo) -> None:
        """Note what a verifier says that it serves."""
        each = self.known[address]
        each.info, each.refusal = info, ""
        self._compare()

    def failed(self, address: VerifierAddress, error: Exception, now: float) -> bool:
        """Note that a request has failed there. Returns whether the verifier may be away."""
        each = self.known[address]
        health = each.failed(error, now)
        if health is not None:
            self.found(each, health, each.refusal)
        return health is not None

    def found(self, each: KnownVerifier, health: Health, refusal: str) -> None:
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
        for each in self.all:
            if self.model is not None and each.info is not None:
                differs = difference(each.info, self.model)
                if differs and differs != each.differs:
                    self._untold.append(f"the verifier at {each.address} is not taken: {differs}")
                each.differs = differs
