"""The fleet that a configuration describes. Pure but for the files of costs."""

import math

from simulator.configuration.configuration import Configuration
from simulator.configuration.connections import Connection, between
from simulator.configuration.devices import Agreement, Drafters, StatedAgreement, Verifiers
from simulator.fleet.settings import Device, FleetSetting, Mode, VerifierKind
from simulator.virtual.world import Network
from specpair.balancing.named import policy_of

MS = 1e-3
_SAMPLE_EVERY = 0.25  # seconds of simulated time


class CannotRun(ValueError):
    """A configuration is valid, but asks for what no run can do. The message names the key and what to do."""


def setting_of(configuration: Configuration, seed: int) -> FleetSetting:
    """The fleet of a configuration, in one replication whose chance is `seed`.

    Raises CannotRun for a key that it cannot honour, BadCost for a file that is no table of costs.
    """
    _refuse(configuration)
    verifiers = {
        f"{kind.name}-{number}": _verifier(kind, configuration)
        for kind in configuration.devices.verifiers
        for number in range(1, kind.count + 1)
    }
    drafters = configuration.devices.drafters
    if drafters:
        devices = tuple(_device(kind, configuration) for kind in drafters)
        agreement = _agreement(drafters[0].agreement)
    else:
        devices, agreement = (Device(mode=Mode(configuration.mode)),), ()
    deadline = configuration.slo.tpot_ms
    return FleetSetting(
        verifiers,
        devices,
        policy_of(configuration.router),
        sample_every=_SAMPLE_EVERY,
        agreement=lambda position: agreement[min(position, len(agreement) - 1)] if agreement else 0.0,
        deadline=math.inf if deadline is None else deadline * MS,
        seed=seed,
    )


def _verifier(kind: Verifiers, configuration: Configuration) -> VerifierKind:
    return VerifierKind(
        kind.pass_cost(),
        kind.slots,
        kind.weight,
        prefill_chunk=kind.prefill_chunk,
        batching_window=configuration.batching_window,
        name=kind.name,
    )


def _device(kind: Drafters, configuration: Configuration) -> Device:
    gamma = configuration.gamma
    (link,) = {_network(each) for each in _links(kind, configuration)}
    length = gamma if isinstance(gamma, int) else None
    return Device(link, Mode(configuration.mode), kind.pass_cost(), length, float(kind.count))


def _links(kind: Drafters, configuration: Configuration) -> list[Connection]:
    return [between(configuration.connections, kind.name, each.name) for each in configuration.devices.verifiers]


def _network(connection: Connection) -> Network:
    link = connection.built()
    return Network(link.rtt_ms * MS, link.jitter_ms * MS, link.loss)


def _agreement(given: Agreement) -> tuple[float, ...]:
    assert isinstance(given, StatedAgreement), "refused before"
    return tuple(given.by_position)


def _refuse(configuration: Configuration) -> None:
    """Raise CannotRun for the first key that no run honours yet."""
    drafters, mode = configuration.devices.drafters, configuration.mode
    if mode in ("auto", "fused"):
        raise CannotRun(f"mode: {mode} cannot run yet: choose target, lockstep or remote")
    if mode == "remote" and configuration.gamma != "auto":
        raise CannotRun("gamma: a number of draft tokens runs with mode lockstep only: leave gamma out")
    if mode == "lockstep" and configuration.gamma == "auto":
        raise CannotRun("gamma: mode lockstep needs a number of draft tokens, such as 4")
    if configuration.workload.arrival == "closed":
        raise CannotRun("workload: arrival: closed cannot run yet: choose poisson")
    if configuration.failures:
        raise CannotRun("failures: cannot run yet: leave them out")
    if configuration.autoscaling:
        raise CannotRun("autoscaling: cannot run yet: leave it out")
    for kind in drafters:
        if len({_network(each) for each in _links(kind, configuration)}) > 1:
            raise CannotRun(f"connections: {kind.name} must be as far from all verifiers: it cannot run yet otherwise")
        if not isinstance(kind.agreement, StatedAgreement):
            raise CannotRun(f"devices: drafters: {kind.name}: agreement: a profile cannot run yet: state shares")
