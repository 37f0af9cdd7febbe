"""Keys of a file that are replaced for one run."""

import pytest

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.example import example
from lab.simulator.configuration.reading import BadConfiguration, parse
from tests.paths import ROOT


def changed(*overrides: str) -> Configuration:
    return parse(example(), "fleet.yaml", ROOT, overrides)


def test_keys_are_replaced_and_added_anywhere() -> None:
    found = changed(
        "sim_time_ms=90000",
        "mode=target",
        "workload.turns=1",
        "devices.verifiers.big.count=7",
        "devices.drafters[laptop].count=8",
        "devices.drafters.1.agreement=[0.5, 0.4]",
        "prices.per_hour.big=4",
        "prices.per_kwh=0.25",
        "slo.latency_ms=null",
        "connections.0={drafters: laptop, verifiers: '*', link: wan}",
    )
    assert (found.sim_time_ms, found.mode) == (90000, "target")
    assert [kind.count for kind in found.devices.verifiers] == [7]
    assert found.devices.drafters[0].count == 8
    assert found.devices.drafters[1].model_dump()["agreement"]["by_position"] == [0.5, 0.4]
    assert found.prices.per_hour == {"big": 4} and found.prices.per_kwh == 0.25
    assert found.connections[0].link == "wan"


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("gamma", "--set gamma: not KEY=VALUE, such as workload.rate_rps=4"),
        ("gamma=", "--set gamma=: has no value; null is one"),
        ("gamma=[", "--set gamma=[: not YAML: line 1, column 2: "),
        ("gama=4", "--set gama=4: no key 'gama'; did you mean gamma?"),
        ("mode=romote", "--set mode=romote: mode: no 'romote'; did you mean remote?"),
        ("devices.verifiers.bag.count=2", "--set devices.verifiers.bag.count=2: no entry 'bag'; did you mean big?"),
        ("devices.verifiers.big.slot=2", "--set devices.verifiers.big.slot=2: devices.verifiers[0]: no key 'slot'"),
        ("seed.a=2", "--set seed.a=2: seed has no keys"),
    ],
)
def test_a_mistake_is_named_with_what_was_given(override: str, complaint: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        changed(override)
    assert str(caught.value).startswith(complaint)
