"""The fleet that a configuration describes. Pure but for the files of costs."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

from gateway.balancing.policies import policy_of
from lab.simulator.configuration import operation
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.connections import ALL, Connection
from lab.simulator.configuration.devices import Drafters, DraftModel, Verifiers
from lab.simulator.configuration.workload import ClosedArrivals
from lab.simulator.fleet.settings import Autoscaling, Breakdowns, DeviceKind, FleetSetting, Mode, Prefill, VerifierKind
from lab.simulator.virtual.network import Network

MS = 1e-3
_MANY = 200  # drafters from which on they are by table, unless the file says otherwise


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
        prefill=_prefill(configuration),
        autoscaling=tuple(_autoscaling(each, kinds[each.devices]) for each in configuration.autoscaling),
        users=workload.users if isinstance(workload := configuration.workload, ClosedArrivals) else None,
        probes=configuration.probes if _by_table(configuration) else None,
        seed=seed,
    )


def _by_table(configuration: Configuration) -> bool:
    if configuration.fidelity == "auto":
        return sum(kind.count for kind in configuration.devices.drafters) >= _MANY
    return configuration.fidelity == "table"


def _prefill(configuration: Configuration) -> Prefill | None:
    given = configuration.prefill
    if given is None:
        return None
    bytes_per_token = given.kv_bytes_per_token or configuration.kv_bytes()
    assert bytes_per_token is not None, "checked when the file was read"
    return Prefill(bytes_per_token, given.bandwidth_mbps * 1e6 / 8, given.latency_ms * MS, given.least_tokens)


def _verifier(kind: Verifiers, configuration: Configuration) -> VerifierKind:
    return VerifierKind(
        kind.pass_cost(),
        kind.slots,
        kind.weight,
        kind.longest(),
        prefill_chunk=kind.prefill_chunk,
        batching_window=configuration.batching_window,
        batch_tokens=kind.batch_tokens,
        max_queue=kind.max_queue,
        reads_only=kind.reads_only,
        breakdowns=tuple(
            Breakdowns(each.up_s.built(1.0), each.repair_s.built(1.0))
            for each in configuration.failures
            if each.devices == kind.name
        ),
        name=kind.name,
        **({} if kind.draft is None else _drafts(kind.draft, kind)),
    )


def _drafts(model: DraftModel, kind: Verifiers) -> dict[str, Any]:
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


def _autoscaling(given: operation.Autoscaling, kind: VerifierKind) -> Autoscaling:
    above = given.queue_time_ms * MS
    return Autoscaling(kind, above, above / 2, given.start_up_s, given.most, given.least, given.every_s)


def _device(kind: Drafters, configuration: Configuration) -> DeviceKind:
    return replace(
        _anybody(configuration, kind.name),
        cost=kind.pass_cost(),
        count=kind.count,
        availability=kind.periods(),
        agreement=kind.agreement.built(),
        name=kind.name,
    )


def _anybody(configuration: Configuration, drafters: str = ALL) -> DeviceKind:
    """A device for each user that comes, as far from verifiers as `drafters` are."""
    gamma, verifiers = configuration.gamma, configuration.devices.verifiers
    links = {each.name: _network(configuration.connection(drafters, each.name)) for each in verifiers}
    return DeviceKind(mode=Mode(configuration.mode), length=gamma.built(), trees=gamma.trees, links=links)


def _network(connection: Connection) -> Network:
    link, recorded = connection.built(), connection.recorded()
    bandwidth = link.bandwidth_mbps * 1e6 / 8
    if recorded is not None:
        return Network(recorded.median, loss=link.loss, bandwidth=bandwidth, recorded=recorded)
    return Network(link.rtt_ms * MS, link.jitter_ms * MS, link.loss, bandwidth=bandwidth)
