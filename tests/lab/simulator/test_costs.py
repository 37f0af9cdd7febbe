"""What a pass takes: by a roofline, by the catalogue, by tables."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.costs.catalogue import hardware, model, names, roofline
from lab.simulator.costs.cost import BadCost, CostUnknown
from lab.simulator.costs.roofline import Device, Model, Roofline
from lab.simulator.costs.tables import MeasuredPass, PassTable, read_table
from tests.paths import ROOT

SIZES: dict[str, Any] = {
    "d_model": 8,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 2,
    "ffn": 16,
    "vocabulary": 100,
}
MODEL = Model(**SIZES)
MIXTURE = Model(**SIZES, experts=8, active_experts=2)
RATES: dict[str, Any] = {"memory": 1e9, "bandwidth": 1e6, "bandwidth_efficiency": 0.5, "flops_efficiency": 0.25}
SLOW_MEMORY = Device(**RATES, flops={"bf16": 1e15}, link=1e6, link_latency=0.001)
SLOW_COMPUTE = Device(**RATES | {"bandwidth": 1e15}, flops={"bf16": 1e6})
LAYERS = 2 * (8 * 2 * 2 * (4 + 2) + 3 * 8 * 16)  # weights of the layers
HEAD = 8 * 100
CACHED = 2 * 2 * 2 * 2  # values for a token: keys and values, layers, heads, their width
passes = st.lists(st.tuples(st.integers(1, 64), st.integers(0, 4096)), min_size=1, max_size=6)


def test_a_pass_bound_by_memory_reads_weights_once_and_each_cache() -> None:
    moved = LAYERS + HEAD + 3 * 8 + CACHED * (100 + 2 * 1) + CACHED * (50 + 2 * 2)
    assert Roofline(MODEL, SLOW_MEMORY).seconds([(1, 100), (2, 50)]) == pytest.approx(2 * moved / 0.5e6)
    quarter = Roofline(MODEL, SLOW_MEMORY, weights="int4", cache="fp8").seconds([(1, 0)])
    assert quarter == pytest.approx((0.5 * (LAYERS + HEAD + 8) + CACHED * 2) / 0.5e6)


def test_a_pass_bound_by_compute_counts_two_flops_a_weight_and_token() -> None:
    attended = 3 * (100 + 2)
    flops = 2 * 3 * (LAYERS + HEAD) + 4 * 2 * 4 * 2 * attended
    assert Roofline(MODEL, SLOW_COMPUTE).seconds([(3, 100)]) == pytest.approx(flops / 0.25e6)


@pytest.mark.parametrize("tokens", [1, 4, 1000])
def test_a_mixture_reads_the_experts_that_its_tokens_hit(tokens: int) -> None:
    hit = 8 * (1 - 0.75**tokens)
    moved = 2 * (8 * 2 * 2 * 6 + 8 * 8 + hit * 3 * 8 * 16) + HEAD + 8 * tokens + 2 * CACHED * tokens
    assert Roofline(MIXTURE, SLOW_MEMORY, scored=1).seconds([(tokens, 0)]) == pytest.approx(2 * moved / 0.5e6)
    assert tokens > 1 or hit == pytest.approx(2)


def test_tensor_parallelism_splits_the_work_and_pays_for_exchanges() -> None:
    alone = Roofline(MODEL, SLOW_MEMORY).seconds([(1, 0)])
    exchanges = 2 * 2 * (0.001 + 2 * 1 / 2 * 8 * 2 / 1e6)
    assert Roofline(MODEL, SLOW_MEMORY, degree=2).seconds([(1, 0)]) == pytest.approx(alone / 2 + exchanges)
    cached = CACHED * 2 * 2 / 0.5e6
    exchanges = 2 * 2 * (0.001 + 2 * 3 / 4 * 8 * 2 / 1e6)
    four = Roofline(MODEL, SLOW_MEMORY, degree=4).seconds([(1, 0)])
    assert four == pytest.approx((alone - cached) / 4 + cached / 2 + exchanges), "two heads of the cache, so two parts"


@given(passes, st.sampled_from([MODEL, MIXTURE]), st.sampled_from([SLOW_MEMORY, SLOW_COMPUTE]), st.data())
def test_a_larger_pass_takes_longer(
    sequences: list[tuple[int, int]], model: Model, device: Device, data: st.DataObject
) -> None:
    cost = Roofline(model, device)
    at = data.draw(st.sampled_from(range(len(sequences))))
    more = [(new + (each == at), cached) for each, (new, cached) in enumerate(sequences)]
    deeper = [(new, cached + 1) for new, cached in sequences]
    assert cost.seconds(more) >= cost.seconds(sequences) > 0
    assert cost.seconds(deeper) >= cost.seconds(sequences)
    assert cost.seconds([*sequences, (1, 0)]) >= cost.seconds(sequences)
    each_alone = sum(cost.seconds([each]) for each in sequences)
    assert cost.seconds(sequences) <= each_alone * (1 + 1e-9), "together weights are read once"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"degree": 3}, "does not divide the 4 heads"),
        ({"weights": "bf61"}, "did you mean bf16"),
        ({"weights": "fp32"}, "fp32 are multiplied in fp32, and flops has bf16"),
    ],
)
def test_what_does_not_go_together_is_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(BadCost, match=words):
        Roofline(MODEL, SLOW_MEMORY, **how)


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
        ("[x]\nbandwidht = 1.0", "x: no key 'bandwidht'; did you mean bandwidth"),
        ("[x]\nmemory = 1.0", "x: bandwidth: Field required"),
        ('[x]\nmemory = {value = 1.0, kind = "guess", source = "s"}', "x: memory must be"),
        ('[x]\nmemory = {value = 1.0, kind = "derived", source = "s"}', "unknown source 's'"),
        ('[x]\nof = "h100-sxm"\ncount = 0', "above 0"),
        ("[x", "is no catalogue"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_mistake(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(BadCost, match=words):
        hardware("x", path)


CELLS = [MeasuredPass(rows, tokens, 1e-3 * (10 + tokens * rows)) for rows in (1, 2, 4) for tokens in (1, 5, 9)]
noisy = st.lists(st.floats(1e-3, 1.0), min_size=9, max_size=9)
table_passes = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 4000)), min_size=1, max_size=4)


def table(times: list[float] | None = None) -> PassTable:
    return PassTable(CELLS if times is None else [c._replace(seconds=t) for c, t in zip(CELLS, times, strict=True)])


@given(noisy, table_passes, st.data())
def test_times_never_fall_as_a_pass_grows(
    times: list[float], sequences: list[tuple[int, int]], data: st.DataObject
) -> None:
    grown = data.draw(st.sampled_from(range(len(sequences))))
    larger = [(new + (at == grown), cached) for at, (new, cached) in enumerate(sequences)]
    assert table(times).seconds(larger) >= table(times).seconds(sequences) - 1e-12


def test_times_are_linear_in_the_context_between_two_that_were_measured() -> None:
    both = PassTable(
        [each._replace(context=at, seconds=each.seconds + at * 1e-6) for at in (100, 1100) for each in CELLS]
    )
    assert both.seconds([(5, 600), (5, 600)]) == pytest.approx(20.6e-3)
    assert both.seconds([(5, 0)]) == pytest.approx(15.1e-3), "less than was measured counts as the least that was"
    with pytest.raises(CostUnknown, match="tokens of context"):
        both.seconds([(5, 5000)])


@pytest.mark.parametrize(("sequences", "words"), [([(145, 0)], "145 tokens"), ([(1, 0)] * 17, "17 rows")])
def test_a_pass_far_beyond_the_cells_is_refused_with_what_to_measure(
    sequences: list[tuple[int, int]], words: str
) -> None:
    with pytest.raises(CostUnknown, match=f"{words}.*verify_curve"):
        table().seconds(sequences)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([], "at least one"),
        ([CELLS[0], CELLS[0]], "measured twice"),
        ([CELLS[0], CELLS[1]._replace(context=5)], "at which context"),
    ],
)
def test_what_is_no_table_is_refused(cells: list[MeasuredPass], words: str) -> None:
    with pytest.raises(BadCost, match=words):
        PassTable(cells)


@pytest.mark.parametrize("path", sorted((ROOT / "lab" / "benchmarks" / "results").glob("verify_curve_*.json")), ids=str)
def test_files_of_the_benchmark_are_read(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    cost = read_table(path)
    for each in (cells[0], cells[-1]):
        highest = max(c["ms"] for c in cells if c["rows"] <= each["rows"] and c["drafts"] <= each["drafts"])
        tokens = [(each["drafts"] + 1, 512)] * each["rows"]
        assert 1e3 * cost.seconds(tokens) == pytest.approx(highest), "or what a smaller pass took"


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "Invalid JSON"), ("{}", "cells"), ('{"cells": [{"rows": 1, "drafts": 0, "ms": -1}]}', r"cells\.0\.ms")],
)
def test_a_file_of_another_form_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BadCost, match=f"x.json is no file .*{words}"):
        read_table(path)
    with pytest.raises(BadCost, match=r"none.json cannot be read"):
        read_table(tmp_path / "none.json")
    path.write_text('{"cells": [{"rows": 1, "drafts": 0, "ms": 1}]}')
    with pytest.raises(CostUnknown, match=r"x\.json: a pass over 8 tokens is beyond 4 times the 1 measured there"):
        read_table(path).seconds([(1, 0)] * 8)
