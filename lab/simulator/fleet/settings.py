"""What a fleet is made of. Times in seconds."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.balancing import DEFAULT, KNOWN, LOOK_EVERY, Policy
from lab.simulator.costs.cost import PassCost
from lab.simulator.virtual.agreement import Agreement, constant
from lab.simulator.virtual.network import Network
from specpair.engines.load_options import LoadOptions
from verifier_server.engine.sequence_state import LONGEST
from verifier_server.options import MOST_DRAFT_SLOTS, VerifierOptions

_NO_DELAY = Network()
Distribution = Callable[[random.Random], float]  # draws seconds
_OFTEN = constant(0.8)


class FleetMode(StrEnum):
    """How texts are written."""

    TARGET = "target"  # the target alone
    FUSED = "fused"  # the server drafts
    LOCKSTEP = "lockstep"  # the device drafts, sends and waits
    REMOTE = "remote"  # the device drafts with all mechanisms on, as it ships


@dataclass(frozen=True, slots=True)
class Breakdowns:
    """Each verifier of a kind is lost again and again, by itself, with all that it holds."""

    up: Distribution  # how long it runs until then
    repair: Distribution  # how long until it takes texts again, with nothing in its slots


@dataclass(frozen=True, slots=True)
class VerifierKind:
    """Verifiers of one kind."""

    cost: PassCost
    slots: int = 32
    weight: float = 1.0
    context: int = 32_768  # tokens of a text, prompt included
    prefill_chunk: int = 128  # prompt tokens in a pass, at most, while other texts are active
    batching_window: float = LONGEST  # the longest one, as a multiple of the time of the pass
    draft_cost: PassCost | None = None  # of its own draft model, which mode fused needs
    draft_agreement: Agreement = _OFTEN
    draft_slots: int = MOST_DRAFT_SLOTS  # texts that this one drafts for at once
    draft_shares_device: bool = False  # whether its passes and the target's slow each other down
    breakdowns: tuple[Breakdowns, ...] = ()
    batch_tokens: int = LoadOptions().batch_tokens  # in a pass, at most, over all texts
    max_queue: int = VerifierOptions.max_queue  # requests that may wait; more are sent away, and come again
    name: str = ""  # tells the kind from the others


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Devices that are alike, each with one user at a time."""

    network: Network = _NO_DELAY  # to verifiers of kinds that `links` does not name
    mode: FleetMode = FleetMode.REMOTE
    cost: PassCost | None = None  # of its draft model, where that drafts
    length: int | None = None  # draft tokens of a round; None: as the controller decides
    trees: bool = False  # whether its drafts are trees where that pays; a server drafts chains
    count: int | None = None  # how many there are; None, of the only kind: one for each user
    agreement: Agreement = _OFTEN  # of its draft model
    links: Mapping[str, Network] = field(default_factory=dict)  # by kinds of verifiers
    name: str = ""  # tells the kind from the others

    def network_to(self, kind: VerifierKind) -> Network:
        """The link to verifiers of a kind. The router stands on the way, and takes no time."""
        return self.links.get(kind.name, self.network)


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """Verifiers of a kind start and stop by the mean queue time of those of it that take texts."""

    kind: VerifierKind
    above: float  # queue time with which one more is started
    below: float  # queue time with which one takes no more texts, and stops when it has none
    start_delay: float  # from the decision until it takes texts
    most: int  # verifiers of the kind
    least: int = 1
    every: float = 5.0  # how often it is decided


@dataclass(frozen=True, slots=True)
class FleetSetting:
    """A fleet, and what happens to it."""

    verifiers: dict[str, VerifierKind]  # by name
    devices: tuple[DeviceKind, ...]
    policy: Callable[[], Policy] = KNOWN[DEFAULT]
    look_every: float = LOOK_EVERY  # how old what the router knows of a verifier may be; 0: it knows all at once
    sample_every: float = 0.0  # how often the observer is told of the verifiers; 0: never
    deadlines: Callable[[str], float] = lambda tenant: math.inf  # of each draft, for policies that heed them
    autoscaling: tuple[Autoscaling, ...] = ()  # at most one for a kind
    users: int | None = None  # of a closed loop, each with one conversation after the other; None: an open workload
    seed: int = 0

    @property
    def kinds(self) -> list[VerifierKind]:
        """Of all verifiers that there are or may be."""
        return [*self.verifiers.values(), *(each.kind for each in self.autoscaling)]
