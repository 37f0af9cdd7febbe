"""What verifiers did behind the burn-in, from samples of them."""

from collections import defaultdict
from dataclasses import dataclass

from lab.simulator.fleet.observer import Sample
from lab.simulator.results.requests import share


@dataclass(slots=True)
class Node:
    """A verifier. Sums over samples are means times their number."""

    kind: str
    up: float = 0.0  # seconds that it was there
    busy: float = 0.0  # seconds of passes
    passes: int = 0
    rows: int = 0
    tokens: int = 0
    samples: int = 0  # in which it was there
    waiting: int = 0  # requests, over samples
    held: int = 0  # slots, over samples
    slots: int = 0  # over samples

    def add(self, other: "Node") -> None:
        """Count what another one did, too."""
        for name in ("up", "busy", "passes", "rows", "tokens", "samples", "waiting", "held", "slots"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def measures(self) -> dict[str, float]:
        """Those of MEASURES that verifiers have."""
        return {
            # A pass is counted as a whole when it begins.
            "utilisation": min(share(self.busy, self.up), 1.0) if self.up else share(0, 0),
            "occupancy": share(self.rows, self.passes),
            "tokens_per_pass": share(self.tokens, self.passes),
            "queue_depth": share(self.waiting, self.samples),
            "slots_held": share(self.held, self.slots),
        }


class Nodes:
    """All verifiers that there were."""

    def __init__(self) -> None:
        self.by_name: dict[str, Node] = {}

    def add(self, name: str, step: Node) -> None:
        """Count what a verifier did."""
        self.by_name.setdefault(name, Node(step.kind)).add(step)

    def all(self) -> Node:
        """All together."""
        whole = Node("")
        for each in self.by_name.values():
            whole.add(each)
        return whole

    def seconds(self) -> dict[str, float]:
        """How long those of each kind were there, all together."""
        found: dict[str, float] = defaultdict(float)
        for each in self.by_name.values():
            found[each.kind] += each.up
        return dict(found)


def since(last: Sample, now: Sample) -> Node:
    """What a verifier did between two samples."""
    return Node(
        now.kind,
        now.at - last.at if now.up else 0.0,
        now.busy - last.busy,
        now.passes - last.passes,
        now.rows - last.rows,
        now.tokens - last.tokens,
        int(now.up),
        now.waiting,
        now.held,
        now.slots if now.up else 0,
    )
