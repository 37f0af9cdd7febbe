"""What is known of one of several verifiers."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from drafter_client.errors import ConnectionLost, OtherModel, VerifierTimeout, VerifierUnreachable
from drafter_client.http import retries
from drafter_client.http.addresses import Address
from drafter_client.http.health import Health
from gateway.balancing.candidate import queue_time
from specpair.protocol.errors import ShuttingDown
from specpair.protocol.service_responses import ModelInfo, continues

_LINKS = 5  # round trips that are kept: the shortest is nearest to the link's own
_SILENT = (ConnectionLost, VerifierUnreachable, VerifierTimeout)
_LONG_AGO = float("-inf")
_UNKNOWN = Health(False, "nothing is known of it yet")
_IN_VAIN = "asked in vain"


class VerifierState(NamedTuple):
    """What a drafter knows of a verifier."""

    address: Address
    why: str  # why no new text goes there; empty: it is ready
    round_trip: float  # seconds, the shortest of the last ones


@dataclass(slots=True, eq=False)
class KnownVerifier:
    """One verifier. Times are seconds of one clock."""

    address: Address
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
