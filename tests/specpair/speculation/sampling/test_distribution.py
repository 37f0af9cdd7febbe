"""Probabilities follow the definition of the filters, and `draw` follows the probabilities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from specpair.speculation.sampling import full_logits
from specpair.speculation.sampling.distribution import draw, probabilities, reported_sampling
from specpair.speculation.sampling.sampling import Logits, Sampling, choose
from tests.specpair.speculation.rows import Device, logits_of, positions, rows, samplings

FLAT = np.zeros(4, np.float32)


def reference(logits: Logits, sampling: Sampling) -> NDArray[np.float64]:
    """The probabilities, computed over the whole sorted vocabulary in float64."""
    p = np.zeros(len(logits))
    if sampling.greedy:
        p[np.argmax(logits)] = 1.0
        return p
    ids = np.lexsort((np.arange(len(logits)), -logits.astype(np.float64)))[: sampling.top_k or None]
    scaled = logits[ids].astype(np.float64) / sampling.temperature
    ids = ids[: full_logits.nucleus_size(scaled, sampling.top_p)]
    mass = np.exp(scaled[: len(ids)] - scaled[0])
    p[ids] = mass / mass.sum()
    return p


@given(rows, samplings)
def test_probabilities_match_the_definition(logits: Logits, sampling: Sampling) -> None:
    p = probabilities(logits, sampling)
    assert np.allclose(p, reference(logits, sampling), rtol=1e-12, atol=0.0)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)


@given(rows, samplings, positions)
def test_chosen_token_has_a_positive_probability(logits: Logits, sampling: Sampling, position: int) -> None:
    assert probabilities(logits, sampling)[choose(logits, sampling, position)] > 0.0


@pytest.mark.parametrize("shape", ["normal", "flat", "peaked", "ties"])
@pytest.mark.parametrize("top_p", [0.5, 0.999, 1.0 - 1e-12])
def test_nucleus_larger_than_the_first_search_is_exact(shape: str, top_p: float) -> None:
    logits = logits_of(shape, 40_000, 3)
    sampling = Sampling(0, 1.5, 0, top_p)
    assert np.allclose(probabilities(logits, sampling), reference(logits, sampling), rtol=1e-11, atol=0.0)


def test_top_logits_fetch_the_whole_row_once() -> None:
    logits, sampling = logits_of("normal", 500, 1), Sampling(0, 0.8, 50, 0.9)
    device = Device(logits)
    top = device.top_logits(8, 0.8)
    for _ in range(2):
        assert np.array_equal(probabilities(top, sampling), probabilities(logits, sampling))
    assert device.asked == 1


def test_greedy_probabilities_are_the_argmax_and_reported_at_temperature_1() -> None:
    logits = np.array([0.0, 2.0, 2.0, -np.inf], np.float32)
    assert probabilities(logits, Sampling(7, 0.0, 1, 0.5)).tolist() == [0.0, 1.0, 0.0, 0.0]
    assert reported_sampling(Sampling(7, 0.0, 1, 0.5)) == Sampling(7, 1.0)
    assert reported_sampling(Sampling(7, 0.5, 1, 0.5)) == Sampling(7, 0.5, 1, 0.5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_invalid_logits_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinity"):
        probabilities(np.array([0.0, bad, 1.0], np.float32), Sampling(0, 1.0))


@given(
    st.lists(st.sampled_from([0.0, 1e-300, 0.1, 0.25, 1.0, 3.0]), min_size=1, max_size=8).filter(any),
    st.floats(0.0, 1.0 - 2.0**-53) | st.just(1.0 - 2.0**-53),
)
def test_draw_never_returns_an_index_without_weight(weights: list[float], u: float) -> None:
    at = draw(np.array(weights), u)
    assert weights[at] > 0.0
    total = sum(weights)
    assert sum(weights[:at]) / total <= u + 1e-12
    assert u <= sum(weights[: at + 1]) / total + 1e-12


def test_draw_maps_numbers_to_indices_in_proportion() -> None:
    assert [draw(np.array([1.0, 0.0, 2.0, 1.0]), u) for u in (0.0, 0.2499, 0.25, 0.7499, 0.75)] == [0, 0, 2, 2, 3]
