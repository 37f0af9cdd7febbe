"""The model of the whole configuration file."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from gateway.balancing import DEFAULT, KNOWN, LOOK_EVERY, check_policy
from lab.simulator.configuration.devices import Devices
from lab.simulator.configuration.keys import FOLDER, Count, Keys, Mistake, NonNegative, Positive
from lab.simulator.configuration.operation import ALL, ConnectionKeys, Prices, SloKeys
from lab.simulator.configuration.workload import WorkloadKeys
from specpair.command_line.setting_values import advice

_LONGEST = 64  # draft tokens


def _known_router(router: str, info: ValidationInfo) -> str:
    """Check the router's name. A user's module may lie beside the file: its folder is the last on the import path."""
    folder = str(Path((info.context or {}).get(FOLDER, ".")).resolve())
    if ":" in router and folder not in sys.path:
        sys.path.append(folder)
    check_policy(router)
    return router


def _draft_length(gamma: int | str) -> int | str:
    if gamma not in ("auto", "tree", *range(1, _LONGEST + 1)):
        raise ValueError(f"must be a number from 1 to {_LONGEST}, auto or tree, got {gamma!r}")
    return gamma


Gamma = Annotated[
    int | str,
    AfterValidator(_draft_length),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "maximum": _LONGEST}, {"enum": ["auto", "tree"]}]}),
]


class Configuration(Keys):
    """A simulation. Paths of files are relative to the folder of the file that names them."""

    sim_time_ms: Positive
    """simulated time, burn-in included"""
    burn_in_ms: NonNegative = 0.0
    """time at the beginning that the results leave out"""
    seed: Annotated[int, Field(ge=0)] = 0
    """all the chance: the same seed gives the same results"""
    replications: Count = 1
    """runs with other chance, whose spread gives the confidence intervals"""
    mode: Literal["target", "fused", "lockstep", "remote", "auto"] = "remote"
    """`target`: no drafts; `fused`: the verifier drafts; `lockstep`: drafters wait for each reply; `remote`: they draft
    on meanwhile, as shipped; `auto`: each drafter selects target, fused or remote, as shipped"""
    gamma: Gamma = "auto"
    """draft tokens of a round: a number; `auto`: a chain, as the drafter's controller decides; `tree`: a tree, where
    that pays"""
    router: Annotated[str, AfterValidator(_known_router), Field(examples=[*KNOWN])] = DEFAULT
    """which verifier a text goes to: a policy of `specpair router`, `semi_clairvoyant`, `slo_aware`, `module:Class`"""
    look_every_ms: NonNegative = LOOK_EVERY * 1e3
    """how often the router asks each verifier for its load; 0: it knows it at all times"""
    batching_window: NonNegative = 0.1
    """how long a pass may wait for further requests, as a multiple of the time that it takes"""
    devices: Devices
    """the machines"""
    connections: list[ConnectionKeys] = Field(default_factory=list)
    """how far drafters are from verifiers: each that fits replaces values of those before it; without any, all are at
    one site"""
    workload: WorkloadKeys
    """what users ask for, and when"""
    slo: SloKeys = Field(default_factory=SloKeys)
    """what users are promised"""
    sample_every_ms: Positive = 250.0
    """how often the verifiers' load is written down"""
    prices: Prices = Field(default_factory=Prices)
    """what the fleet costs"""

    @property
    def promises(self) -> bool:
        """Whether any users have an objective."""
        slos = [self.slo, *(each.slo for each in getattr(self.workload, "tenants", ()))]
        return any(each is not None and each.model_dump(exclude_none=True) for each in slos)

    def slo_of(self, tenant: str) -> SloKeys:
        """The objective of a tenant's users."""
        own = next((each.slo for each in getattr(self.workload, "tenants", ()) if each.name == tenant), None)
        return self.slo if own is None else own

    @model_validator(mode="after")
    def _is_consistent(self) -> "Configuration":
        for mistake in self._mistakes():
            raise mistake
        return self

    def _mistakes(self) -> Iterator[Mistake]:
        """The mistakes between keys."""
        if self.burn_in_ms >= self.sim_time_ms:
            told = f"burn_in_ms, {self.burn_in_ms:g}, leaves nothing of sim_time_ms, {self.sim_time_ms:g}"
            yield Mistake(told, "burn_in_ms")
        if self.mode == "fused":
            if self.gamma != "auto":
                yield Mistake("in the mode fused the server decides how long drafts are: leave gamma out", "gamma")
            for number, kind in enumerate(self.devices.verifiers):
                if kind.draft is None and kind.head is None:
                    told = f"the mode fused needs draft or head of each kind of verifiers, and {kind.name} has neither"
                    yield Mistake(told, "devices", "verifiers", number)
        if not self.devices.drafters and self.mode not in ("target", "fused"):
            told = f"the mode {self.mode} needs devices.drafters; without drafters, choose target or fused"
            yield Mistake(told, "mode")
        verifiers, drafters = (
            [kind.name for kind in kinds] for kinds in (self.devices.verifiers, self.devices.drafters)
        )
        for number, each in enumerate(self.connections):
            yield from _unknown(each.drafters, [ALL, *drafters], "connections", number, "drafters")
            yield from _unknown(each.verifiers, [ALL, *verifiers], "connections", number, "verifiers")
        for key in ("per_hour", "watts"):
            for name in getattr(self.prices, key):
                yield from _unknown(name, [*verifiers, *drafters], "prices", key, name)


def _unknown(name: str, known: list[str], *at: str | int) -> Iterator[Mistake]:
    if name not in known:
        where = ": ".join(str(part) for part in at if isinstance(part, str) and part != name)
        yield Mistake(f"{where}: no kind {name!r}{advice(name, known)}", *at)
