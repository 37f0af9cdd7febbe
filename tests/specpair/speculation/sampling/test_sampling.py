"""`choose` returns the ids of `choose_reference`, by the probabilities that the filters define."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from specpair.speculation.acceptance.draft_probs import propose
from specpair.speculation.sampling import full_logits
from specpair.speculation.sampling.distribution import (
    draw,
    probabilities,
    reported_sampling,
    token_logprobs,
)
from specpair.speculation.sampling.sampling import Logits, Sampling, choose, choose_reference, choose_several
from tests.examples import examples
from tests.specpair.speculation.rows import Device, logits_of, positions, rows, samplings, small_rows


@examples(150)
@given(rows | small_rows, samplings, st.booleans(), st.integers(0, 2**20))
def test_second_choice_is_the_choice_with_the_first_masked(
    row: Logits, sampling: Sampling, filtered: bool, position: int
) -> None:
    if not filtered:
        sampling = Sampling(sampling.seed, sampling.temperature)
    before = row.copy()
    first, *others = choose_several(row, sampling, position, 2)
    assert np.array_equal(row, before), "the engine's logits were restored"
    assert first == choose_reference(row, sampling, position)
    row[first] = -np.inf
    if not others:
        assert not np.isfinite(row).any(), "there is no other"
    else:
        assert others == [choose_reference(row, sampling, position)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_k", [0, 2])
@pytest.mark.parametrize("bad", [[np.nan], [0.0, np.nan, 1.0, 2.0], [-np.inf] * 4, [0.0, np.inf, 1.0]], ids=str)
def test_invalid_logits_are_refused(bad: list[float], top_k: int, temperature: float) -> None:
    with pytest.raises(ValueError, match="without a finite maximum"):
        choose(np.array(bad, dtype=np.float32), Sampling(0, temperature, top_k), 0)
    with pytest.raises(ValueError, match="without a finite maximum"):
        choose_several(np.array(bad, dtype=np.float32), Sampling(0, temperature, top_k), 0, 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", -1),
        ("seed", 2**53),
        ("temperature", -0.1),
        ("temperature", 100.1),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.0001),
        ("top_p", float("nan")),
    ],
)
def test_bad_settings_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field} must be"):
        Sampling(**{field: value})  # type: ignore[arg-type]


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
@pytest.mark.parametrize("of", [probabilities, propose])
def test_probabilities_of_invalid_logits_are_refused(of: Callable[[Logits, Sampling], object], bad: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinity"):
        of(np.array([0.0, bad, 1.0], np.float32), Sampling(0, 1.0))


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


@given(rows, st.integers(0, 20), st.integers(0, 2**32 - 1))
def test_logprobs_equal_a_log_softmax(row: Logits, top: int, seed: int) -> None:
    finite = np.flatnonzero(row > -np.inf)
    token = int(finite[seed % len(finite)])
    found = token_logprobs(row, token, top)
    exact = row.astype(np.float64) - row.max()
    exact -= np.log(np.exp(exact).sum())
    order = [each for each in np.lexsort((np.arange(len(row)), -exact)).tolist() if np.isfinite(exact[each])]
    assert found.token == token and found.logprob == pytest.approx(exact[token], rel=1e-6, abs=1e-5)
    assert [each for each, _ in found.top] == order[:top]
    assert [value for _, value in found.top] == pytest.approx([exact[each] for each in order[:top]], rel=1e-6, abs=1e-5)


LOGITS = np.array([2.0, 0.5, 1.5, -1.0, 0.5, -np.inf, 1.0, 0.0], dtype=np.float32)


def test_similar_distributions_mostly_draw_the_same_token() -> None:
    """With shared noise the agreement is far above that of two independent samplers."""
    near = LOGITS + np.array([0.1, -0.1, 0, 0.2, 0, 0, -0.1, 0], dtype=np.float32)
    positions = range(2000)
    shared = sum(choose(LOGITS, Sampling(5, 1.0), at) == choose(near, Sampling(5, 1.0), at) for at in positions)
    alone = sum(choose(LOGITS, Sampling(5, 1.0), at) == choose(near, Sampling(6, 1.0), at) for at in positions)
    assert shared > 0.9 * len(positions)
    assert alone < 0.4 * len(positions)
