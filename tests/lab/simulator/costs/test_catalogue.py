"""The catalogue: every entry is whole and sourced, the models weigh what their makers say, and names are suggested."""

from pathlib import Path

import pytest

from lab.simulator.costs.catalogue import hardware, model, names, roofline
from lab.simulator.costs.cost import BadCost
from tests.paths import ROOT

PUBLISHED = {  # billions of weights, as the model cards have them; of a mixture also those that are active
    "qwen2.5-0.5b": (0.49, 0.49),
    "qwen2.5-1.5b": (1.54, 1.54),
    "qwen2.5-7b": (7.61, 7.61),
    "qwen2.5-32b": (32.5, 32.5),
    "qwen3-0.6b": (0.6, 0.6),
    "qwen3-1.7b": (1.7, 1.7),
    "qwen3-8b": (8.2, 8.2),
    "qwen3-32b": (32.8, 32.8),
    "qwen3-30b-a3b": (30.5, 3.3),
    "llama-3.2-1b": (1.23, 1.23),
    "llama-3.2-3b": (3.21, 3.21),
    "llama-3.1-8b": (8.03, 8.03),
    "llama-3.1-70b": (70.6, 70.6),
    "mixtral-8x7b": (46.7, 12.9),
}
OWN = """
[mine]
memory = 1e9
bandwidth = 1e9
flops.bf16 = 1e12

[pair]
of = "mine"
count = 2

[small]
d_model = 64
layers = 2
heads = 4
kv_heads = 2
head_dim = 16
ffn = 128
vocabulary = 1000
"""


@pytest.mark.parametrize("name", names("models"))
def test_a_model_weighs_what_its_maker_says(name: str) -> None:
    sizes = model(name)
    embeddings = 0 if sizes.tied_embeddings else sizes.head_weights
    assert sizes.weights / 1e9 == pytest.approx(PUBLISHED[name][0], rel=0.015)
    assert (sizes.active_weights + embeddings) / 1e9 == pytest.approx(PUBLISHED[name][1], rel=0.025)


@pytest.mark.parametrize(
    ("name", "device", "weights", "sequences", "ms", "near"),
    [
        ("qwen2.5-7b", "dgx-spark", "q8_0", [(1, 512)], 34.1, 0.05),
        ("qwen2.5-7b", "dgx-spark", "q8_0", [(1, 512)] * 8, 40.9, 0.15),
        ("llama-3.1-70b", "m2-ultra", "q4_k_m", [(1, 256)], 80.0, 0.1),
    ],
)
def test_steps_take_about_what_was_measured(
    name: str, device: str, weights: str, sequences: list[tuple[int, int]], ms: float, near: float
) -> None:
    """The sources of `lab.simulator.paced.engine`; `lab.benchmarks.roofline` has many more."""
    assert 1e3 * roofline(name, device, weights=weights).seconds(sequences) == pytest.approx(ms, rel=near)


@pytest.mark.parametrize("name", names("devices"))
def test_the_page_lists_a_device(name: str) -> None:
    page = (ROOT / "docs" / "simulator-costs.md").read_text(encoding="utf-8")
    device = hardware(name).device
    assert f"`{name}`" in page
    assert (
        hardware(name).count > 1 or f"| `{name}` | {device.memory / 1e9:.0f} | {device.bandwidth / 1e9:,.0f}, " in page
    )


def test_a_group_is_so_many_of_its_device() -> None:
    half = hardware("half-trn2.48xlarge")
    assert (half.device, half.count) == (hardware("trainium2").device, 8)
    assert roofline("llama-3.1-70b", "half-trn2.48xlarge").seconds([(1, 100)]) > 0


@pytest.mark.parametrize(
    ("name", "words"), [("h100-smx", "did you mean h100-sxm"), ("abacus", "choose one of"), ("sources", "unknown")]
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, words: str) -> None:
    with pytest.raises(BadCost, match=words):
        hardware(name)


def test_a_file_of_the_users_has_the_same_form_and_may_state_values_alone(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    assert hardware("pair", path).count == 2
    assert roofline("small", "mine", path).seconds([(1, 0)]) > 0
    assert hardware("h100-sxm", path).device.memory == 80e9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[x]\nbandwidht = 1.0", "x: unknown key 'bandwidht'; did you mean bandwidth"),
        ("[x]\nmemory = 1.0", "x: bandwidth: Field required"),
        ("[x]\nmemory = {value = 1.0}", "x: memory must be a number, or have value, source"),
        ('[x]\nmemory = {value = 1.0, kind = "guess", source = "s"}', "x: memory must be"),
        ('[x]\nmemory = {value = 1.0, kind = "derived", source = "s"}', "unknown source 's'"),
        ('[x]\nof = "h100-sxm"\ncount = 0', "above 0"),
        ("[x]\nflops = 1e12", "flops must be given by its numbers"),
        ("x = 1", "x is no table"),
        ("[x", "is no catalogue"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_mistake(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(BadCost, match=words):
        hardware("x", path)
