"""Runs a configuration: the fleet that it describes, in virtual time."""

import hashlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gateway.balancing import policy_of
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.devices import DrafterKeys, DraftModelKeys, VerifierKeys
from lab.simulator.configuration.keys import MS
from lab.simulator.configuration.operation import ALL, AutoscalingKeys, network_between
from lab.simulator.configuration.workload import ClosedArrivals
from lab.simulator.fleet.fleet import Fleet
from lab.simulator.fleet.record import FleetObserver, Sample
from lab.simulator.fleet.settings import Autoscaling, Breakdowns, DeviceKind, FleetMode, FleetSetting, VerifierKind


def setting_of(configuration: Configuration, seed: int) -> FleetSetting:
    """The fleet of a configuration, in one replication whose chance is `seed`.

    Raises BadCost for a file that is no table of costs.
    """
    kinds = {kind.name: _verifier(kind, configuration) for kind in configuration.devices.verifiers}
    verifiers = {
        f"{kind.name}-{number}": kinds[kind.name]
        for kind in configuration.devices.verifiers
        for number in range(1, kind.count + 1)
    }
    devices = tuple(_device(kind, configuration) for kind in configuration.devices.drafters)
    return FleetSetting(
        verifiers,
        devices or (_anybody(configuration),),
        policy_of(configuration.router),
        look_every=configuration.look_every_ms * MS,
        sample_every=configuration.sample_every_ms * MS,
        deadlines=partial(_deadline, configuration),
        autoscaling=tuple(_autoscaling(each, kinds[each.devices]) for each in configuration.autoscaling),
        users=workload.users if isinstance(workload := configuration.workload, ClosedArrivals) else None,
        seed=seed,
    )


def _verifier(kind: VerifierKeys, configuration: Configuration) -> VerifierKind:
    return VerifierKind(
        kind.pass_cost(),
        kind.slots,
        kind.weight,
        kind.longest(),
        prefill_chunk=kind.prefill_chunk,
        batching_window=configuration.batching_window,
        batch_tokens=kind.batch_tokens,
        max_queue=kind.max_queue,
        breakdowns=tuple(
            Breakdowns(each.up_s.draw, each.repair_s.draw)
            for each in configuration.failures
            if each.devices == kind.name
        ),
        name=kind.name,
        **({} if kind.draft is None else _drafts(kind.draft, kind)),
    )


def _drafts(model: DraftModelKeys, kind: VerifierKeys) -> dict[str, Any]:
    named = model.device is not None and kind.device is not None
    return {
        "draft_cost": model.pass_cost(),
        "draft_slots": model.slots,
        "draft_agreement": model.agreement.built(),
        "draft_shares_device": named if model.shares_device is None else model.shares_device,
    }


def _deadline(configuration: Configuration, tenant: str) -> float:
    """In which each draft of a tenant should be judged: it brings one token at least."""
    tpot = configuration.slo_of(tenant).tpot_ms
    return math.inf if tpot is None else tpot * MS


def _autoscaling(given: AutoscalingKeys, kind: VerifierKind) -> Autoscaling:
    above = given.queue_time_ms * MS
    return Autoscaling(kind, above, above / 2, given.start_up_s, given.most, least=given.least, every=given.every_s)


def _device(kind: DrafterKeys, configuration: Configuration) -> DeviceKind:
    return replace(
        _anybody(configuration, kind.name),
        cost=kind.pass_cost(),
        count=kind.count,
        agreement=kind.agreement.built(),
        name=kind.name,
    )


def _anybody(configuration: Configuration, drafters: str = ALL) -> DeviceKind:
    """A device for each user that comes, as far from verifiers as `drafters` are."""
    gamma, verifiers = configuration.gamma, configuration.devices.verifiers
    links = {each.name: network_between(configuration.connections, drafters, each.name) for each in verifiers}
    length = gamma if isinstance(gamma, int) else None
    return DeviceKind(mode=FleetMode(configuration.mode), length=length, trees=gamma == "tree", links=links)


def seed_of(configuration: Configuration, replication: int) -> int:
    """The seed of a replication; the first is 0. Unlike replications have unlike seeds, and so have unlike `seed`s."""
    digest = hashlib.sha256(f"{configuration.seed}/{replication}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


class Stopped(Exception):
    """Raised by `progress` to end a replication early."""


def simulate(
    configuration: Configuration,
    seed: int,
    observer: FleetObserver,
    progress: Callable[[float], object] = lambda now: None,
) -> float:
    """Run a configuration once, for its simulated time. What is under way then is unfinished.

    `seed`: all the chance. The workload and the texts are the same for equal seeds, whatever the fleet.
    `observer`: told of all requests and samples, those of the burn-in included.
    `progress`: called with the simulated seconds so far, at each sample. If it raises Stopped, the run ends there.

    Returns how many seconds were simulated.

    Raises BadCost and BadTrace for files that are none of theirs, and CostUnknown for a pass that is too far from what
    a table has.
    """
    conversations = configuration.workload.conversations(random.Random(f"{seed}/workload"))
    fleet = Fleet(setting_of(configuration, seed), conversations, _Watched(observer, progress))
    seconds = configuration.sim_time_ms * MS
    try:
        fleet.run(until=seconds)
    except Stopped:
        seconds = fleet.loop.now
    fleet.interrupt()
    return seconds


class _Watched:
    """An observer, with progress."""

    def __init__(self, observer: FleetObserver, progress: Callable[[float], object]) -> None:
        self.record, self._sample, self._progress = observer.record, observer.sample, progress

    def sample(self, samples: Sequence[Sample]) -> None:
        self._sample(samples)
        self._progress(samples[0].at)
