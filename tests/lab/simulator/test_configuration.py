"""The file of a simulation: its example, what its keys stand for, and how mistakes are named."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.balancing import KNOWN
from lab.simulator import command_line
from lab.simulator.command_line import example, schema
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import Keys
from lab.simulator.configuration.operation import ALL, LINKS, between
from lab.simulator.configuration.reading import BadConfiguration, parse
from lab.simulator.costs.catalogue import roofline
from tests.paths import ROOT

SMALL = """\
sim_time_ms: 1000
mode: target
devices:
  verifiers:
    - {name: big, cost: {law: linear, decode_ms: 25}}
workload:
"""
DRAWN = "  prompt_tokens: 9\n  output_tokens: 5\n"


def models(of: type[Keys] = Keys) -> Iterator[type[Keys]]:
    """Those of this file: other files have keys, too."""
    for each in of.__subclasses__():
        if each.__module__.startswith("lab.simulator.configuration."):
            yield each
        yield from models(each)


def test_the_example_is_valid_and_is_the_same_when_it_is_written_and_read_again() -> None:
    configuration = parse(example(), "example", ROOT)
    assert [kind.name for kind in configuration.devices.drafters] == ["laptop", "phone"]
    assert Configuration.model_validate_json(configuration.model_dump_json(exclude_unset=True)) == configuration


def test_the_example_of_the_docs_is_valid() -> None:
    page = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    file, _, _ = page.partition("```yaml\n")[2].partition("```\n")
    assert [kind.name for kind in parse(file, "fleet.yaml", ROOT).devices.verifiers] == ["spark"]


def test_the_example_has_every_key_and_every_choice() -> None:
    keys = {name for model in models() for name in model.model_fields}
    assert {"sim_time_ms", "burn_in_ms", "gamma", "router", "devices", "connections", "workload"} <= keys
    assert [name for name in sorted(keys) if not re.search(rf"\b{name}:", example())] == []
    choices = set(re.findall(r'"const": "(\w+)"', json.dumps(schema())))
    assert "lognormal" in choices
    assert [word for word in sorted({*choices, *LINKS, *KNOWN}) if not re.search(rf"\b{word}\b", example())] == []


def test_every_key_is_described() -> None:
    assert [
        f"{m.__name__}.{name}"
        for m in models()
        for name, field in m.model_fields.items()
        if not field.description and not _is_form(field.annotation)
    ] == []


def _is_form(annotation: Any) -> bool:
    """Whether the key says which form a value has."""
    return str(annotation).startswith("typing.Literal") and len(annotation.__args__) == 1


def test_the_schema_admits_the_example() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    import yaml

    jsonschema.validate(yaml.safe_load(example()), schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(example()) | {"gamma": "fast"}, schema())


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("sim_time_ms: 60000", "sim_time: 60000", r"no key 'sim_time'; did you mean sim_time_ms\?"),
        ("      slots: 16", "      slot: 16", r"devices\.verifiers\[0\]: no key 'slot'; did you mean slots\?"),
        ("rate_rps: 1.0", "rate_rpm: 1.0", r"workload: no key 'rate_rpm'; did you mean rate_rps\?"),
        ("rate_rps: 1.0", "rate_rps: 0", r"workload\.rate_rps: input should be greater than 0, got 0"),
        ("  rate_rps: 1.0", "", r"workload: the key rate_rps is missing"),
        ("  arrival: poisson", "", r"workload: the key 'arrival' is missing, which says the form"),
        ("min: 16, max: 4096", "min: 16, max: 8", r"workload\.prompt_tokens: min, 16, is above max, 8"),
        ("  output_tokens: 200", "", r"workload: the tenant 'chat' has no output_tokens"),
        ("gamma: auto", "gamma: fast", r"gamma: must be a number from 1 to 64, auto or tree, got 'fast'"),
        ("link: metro", "link: metr", r"connections\[0\]\.link: no link 'metr'; did you mean metro\?"),
        ("law: linear, decode_ms: 25", "law: table, table_path: gone}  # {", r"cost\.table_path: no file .*gone"),
        ("seed: 1", "seed: 1\nseed: 2", r"is not YAML: .*the key 'seed' is given twice"),
    ],
)
def test_mistakes_are_named_with_their_place(before: str, after: str, message: str) -> None:
    assert example().count(before) >= 1
    with pytest.raises(BadConfiguration, match=rf"^f\.yaml(, line \d+: | ){message}|^f\.yaml, line \d+: .*{message}"):
        parse(example().replace(before, after, 1), "f.yaml", ROOT)


@pytest.mark.parametrize(
    ("before", "after", "at", "message"),
    [
        ("burn_in_ms: 5000", "burn_in_ms: 60000", "burn_in_ms", "burn_in_ms, 60000, leaves nothing"),
        ("mode: remote", "mode: fused", "- name: big", "needs draft or head"),
        ("drafters: phone", "drafters: fone", "drafters: fone", "connections: drafters: no kind 'fone'"),
        ("name: phone", "name: laptop", "- name: laptop", "two kinds are called 'laptop'"),
        ("      agreement: 0.7", "      agreement: 0.7\n      model: m", "      model: m", "has model and cost"),
    ],
)
def test_a_mistake_between_keys_is_named_with_the_line_of_the_one_at_fault(
    before: str, after: str, at: str, message: str
) -> None:
    text = example().replace(before, after, 1)
    line = [number for number, each in enumerate(text.splitlines(), 1) if at in each and each.lstrip()[0] != "#"]
    with pytest.raises(BadConfiguration, match=rf"^f, line {line[-1]}: .*{message}"):
        parse(text, "f", ROOT)


@pytest.mark.parametrize("text", ["", "- a\n", "5\n"])
def test_a_file_without_keys_is_pointed_to_the_example(text: str) -> None:
    with pytest.raises(BadConfiguration, match=r"has no keys: 'specpair simulator init' writes an example"):
        parse(text, "f", ROOT)


def test_an_entry_without_a_link_replaces_values_of_what_counts_without_it() -> None:
    text = SMALL + "  arrival: poisson\n  rate_rps: 1\n" + DRAWN + "connections:\n  - {link: wan}\n"

    def link(more: str) -> object:
        return between(parse(text + more, "f", ROOT).connections, ALL, "big")

    assert link("  - {loss: 0}\n  - {rtt_ms: 9}\n") == LINKS["wan"]._replace(loss=0, rtt_ms=9)
    assert link("  - {loss: 0}\n  - {link: metro, rtt_ms: 9}\n") == LINKS["metro"]._replace(rtt_ms=9)


NAMED = "model: llama-3.1-70b, device: h100-sxm-x4, weights: fp8"


def test_a_device_by_name_has_the_cost_of_the_catalogue() -> None:
    text = SMALL.replace("cost: {law: linear, decode_ms: 25}", NAMED) + "  arrival: poisson\n  rate_rps: 1\n" + DRAWN
    seconds = parse(text, "f.yaml", ROOT).devices.verifiers[0].pass_cost.seconds([(1, 100)])
    assert seconds == roofline("llama-3.1-70b", "h100-sxm-x4", weights="fp8").seconds([(1, 100)])
    with pytest.raises(BadConfiguration, match=r"line 5: devices\.verifiers\[0\]: .*h100-sxm"):
        parse(text.replace("h100-sxm-x4", "h100-sx"), "f.yaml", ROOT)


def test_slots_and_contexts_that_no_memory_holds_are_refused() -> None:
    text = SMALL + "  arrival: poisson\n  rate_rps: 1\n" + DRAWN

    def read(more: str) -> Configuration:
        return parse(text.replace("cost: {law: linear, decode_ms: 25}", NAMED + more), "f.yaml", ROOT)

    held = roofline("llama-3.1-70b", "h100-sxm-x4", weights="fp8").cache_tokens()
    with pytest.raises(BadConfiguration, match=rf"line 5: .*slots x context asks for 99 x 30,000: .* {held // 99:,}, "):
        read(", slots: 99, context: 30000")
    with pytest.raises(BadConfiguration, match="give a smaller context"):
        read(f", shared_cache: true, context: {held + 1}")
    assert read(f", slots: 2, context: {held // 2}").devices.verifiers[0].longest == held // 2
    assert read(", slots: 99").devices.verifiers[0].longest == held // 99
    assert read(", slots: 99, shared_cache: true").devices.verifiers[0].longest == 32_768


def test_init_writes_the_example_once_and_check_names_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fleet.yaml"
    assert command_line.run(["init", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == example()
    assert command_line.run(["check", str(file)]) == 0
    assert command_line.run(["init", str(file)]) == 1
    file.write_text(example().replace("seed: 1", "sead: 1"))
    assert command_line.run(["check", str(file)]) == 1
    assert "is there already: name another file" in (said := capsys.readouterr().err)
    assert "no key 'sead'; did you mean seed?" in said
    assert command_line.run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()


# Overrides.


def test_keys_are_replaced_and_added_anywhere() -> None:
    given = [
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
    ]
    found = parse(example(), "fleet.yaml", ROOT, given)
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
        ("gamma=[", "--set gamma=[: not YAML: line 1, column 2: "),
        ("gama=4", "--set gama=4: no key 'gama'; did you mean gamma?"),
        ("devices.verifiers.bag.count=2", "--set devices.verifiers.bag.count=2: no entry 'bag'; did you mean big?"),
        ("seed.a=2", "--set seed.a=2: seed has no keys"),
    ],
)
def test_a_mistake_in_an_override_is_named_with_what_was_given(override: str, complaint: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        parse(example(), "fleet.yaml", ROOT, [override])
    assert str(caught.value).startswith(complaint)
