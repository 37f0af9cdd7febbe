"""The roofline: bytes and FLOPs of a pass counted by hand, what it grows with, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lab.simulator.costs.cost import BadCost
from lab.simulator.costs.dimensions import Device, Model
from lab.simulator.costs.roofline import Roofline

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


def test_weights_are_counted() -> None:
    assert MODEL.weights == LAYERS + 2 * HEAD
    assert MODEL.active_weights == LAYERS + HEAD
    assert MIXTURE.weights - MIXTURE.active_weights == 2 * 6 * 3 * 8 * 16 + HEAD
    assert Model(**SIZES, tied_embeddings=True).weights == LAYERS + HEAD
    assert MODEL.cached_values == CACHED


def test_a_pass_bound_by_memory_reads_weights_once_and_each_cache() -> None:
    moved = LAYERS + HEAD + 3 * 8 + CACHED * (100 + 2 * 1) + CACHED * (50 + 2 * 2)
    assert Roofline(MODEL, SLOW_MEMORY).seconds([(1, 100), (2, 50)]) == pytest.approx(2 * moved / 0.5e6)
    quarter = Roofline(MODEL, SLOW_MEMORY, weights="int4", cache="fp8").seconds([(1, 0)])
    assert quarter == pytest.approx((0.5 * (LAYERS + HEAD + 8) + CACHED * 2) / 0.5e6)


def test_a_pass_bound_by_compute_counts_two_flops_a_weight_and_token() -> None:
    attended = 3 * (100 + 2)
    flops = 2 * 3 * (LAYERS + HEAD) + 4 * 2 * 4 * 2 * attended
    assert Roofline(MODEL, SLOW_COMPUTE).seconds([(3, 100)]) == pytest.approx(flops / 0.25e6)


def test_a_prompt_pays_for_few_logits() -> None:
    def cost(scored: int) -> float:
        return Roofline(MODEL, SLOW_COMPUTE, scored=scored).seconds([(50, 0)])

    assert cost(50) - cost(1) == pytest.approx(2 * 49 * HEAD / 0.25e6)


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


def test_what_the_memory_holds_beside_the_weights() -> None:
    device = Device(memory=2 * MODEL.weights + 2 * CACHED * 10, bandwidth=1e6, flops={"bf16": 1e6})
    assert Roofline(MODEL, device).cache_tokens() == 10


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


def test_peaks_are_those_of_the_numbers_that_are_multiplied() -> None:
    device = Device(memory=1, bandwidth=1, flops={"fp8": 4, "bf16": 2, "fp32": 1})
    assert [device.peak(each) for each in ("fp8", "q4_k_m", "fp32")] == [4, 2, 1]
    assert Device(memory=1, bandwidth=1, flops={"bf16": 2}).peak("fp8") == 2


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"degree": 3}, "does not divide the 4 heads"),
        ({"degree": 0}, "does not divide"),
        ({"scored": 0}, "1 or more"),
        ({"weights": "bf61"}, "did you mean bf16"),
        ({"cache": "fp5"}, "unknown number type 'fp5'"),
        ({"weights": "fp32"}, "fp32 are multiplied in fp32, and flops has bf16"),
    ],
)
def test_what_does_not_go_together_is_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(BadCost, match=words):
        Roofline(MODEL, SLOW_MEMORY, **how)


def test_a_model_that_does_not_fit_and_a_missing_link_are_refused() -> None:
    with pytest.raises(BadCost, match="do not fit"):
        Roofline(MODEL, Device(memory=100, bandwidth=1e6, flops={"bf16": 1e6}))
    with pytest.raises(BadCost, match="needs the device's link"):
        Roofline(MODEL, SLOW_COMPUTE, degree=2)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"heads": 3}, "multiple of kv_heads"),
        ({"layers": 0}, "layers"),
        ({"experts": 4}, "active_experts is 0"),
        ({"experts": 4, "active_experts": 5}, "active_experts is 5"),
        ({"fnn": 4}, "fnn"),
    ],
)
def test_sizes_that_no_model_has_are_refused(sizes: dict[str, int], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Model(**SIZES | sizes)
