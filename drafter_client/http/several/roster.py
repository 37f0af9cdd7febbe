"""The verifiers of one pair by what is known of them, and the choice among them: pure, with times as arguments."""

from collections.abc import Iterable

from drafter_client.http.addresses import Address
from drafter_client.http.health import Health
from drafter_client.http.several.known import KnownVerifier, VerifierState, difference
from specpair.protocol.service_responses import ModelInfo

_FASTER = 0.8  # a new text leaves the verifier of the last one for another whose cost is below this share


class Roster:
    """All verifiers. `now` is in seconds of one clock."""

    def __init__(self, addresses: Iterable[Address]) -> None:
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

    def states(self, now: float) -> list[VerifierState]:
        usable = self.usable(now)
        return [VerifierState(each.address, "" if each in usable else each.why, each.link) for each in self.all]

    def for_new_text(self, now: float) -> Address:
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

    def for_text_under_way(self, now: float) -> Address | None:
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

    def serves(self, address: Address, info: ModelInfo) -> None:
        """Note what a verifier says that it serves."""
        each = self.known[address]
        each.info, each.refusal = info, ""
        self._compare()

    def failed(self, address: Address, error: Exception, now: float) -> bool:
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
