"""`choose` returns the ids of `choose_reference` for every shape of logits and every filter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.sampling.sampling import Logits, Sampling, choose, choose_reference, choose_two
from tests.examples import examples
from tests.specpair.speculation.rows import SHAPES, logits_of, rows, samplings, small_rows


@examples(150)
@given(rows | small_rows, samplings, st.integers(0, 2**20))
def test_choose_matches_the_definition(row: Logits, sampling: Sampling, position: int) -> None:
    before = row.copy()
    assert choose(row, sampling, position) == choose_reference(row, sampling, position)
    assert np.array_equal(row, before), "the engine's logits were not written to"


@pytest.mark.parametrize("seed", range(3))
def test_choice_where_rounding_leaves_many_ids_close(seed: int) -> None:
    row, sampling = np.full(5000, 1e7, dtype=np.float32), Sampling(seed, 1.0)
    assert choose(row, sampling, 20) == choose_reference(row, sampling, 20)


@examples(150)
@given(rows | small_rows, samplings, st.booleans(), st.integers(0, 2**20))
def test_second_choice_is_the_choice_with_the_first_masked(
    row: Logits, sampling: Sampling, filtered: bool, position: int
) -> None:
    if not filtered:
        sampling = Sampling(sampling.seed, sampling.temperature)
    before = row.copy()
    first, second = choose_two(row, sampling, position)
    assert np.array_equal(row, before), "the engine's logits were restored"
    assert first == choose_reference(row, sampling, position)
    row[first] = -np.inf
    if second is None:
        assert not np.isfinite(row).any(), "there is no other"
    else:
        assert second == choose_reference(row, sampling, position)


@pytest.mark.parametrize("top_p", [1.0, 0.95, 0.5])
@pytest.mark.parametrize("top_k", [0, 40])
def test_choose_matches_the_definition_for_152_000_ids(top_k: int, top_p: float) -> None:
    for seed, shape in enumerate(SHAPES):
        row = logits_of(shape, 152_064, seed)
        sampling = Sampling(seed, 0.8, top_k, top_p)
        assert choose(row, sampling, 9) == choose_reference(row, sampling, 9), shape


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_k", [0, 2])
@pytest.mark.parametrize("bad", [[np.nan], [0.0, np.nan, 1.0, 2.0], [-np.inf] * 4, [0.0, np.inf, 1.0]], ids=str)
def test_invalid_logits_are_refused(bad: list[float], top_k: int, temperature: float) -> None:
    with pytest.raises(ValueError, match="without a finite maximum"):
        choose(np.array(bad, dtype=np.float32), Sampling(0, temperature, top_k), 0)
    with pytest.raises(ValueError, match="without a finite maximum"):
        choose_two(np.array(bad, dtype=np.float32), Sampling(0, temperature, top_k), 0)


def test_ties_at_the_edge_of_top_k_go_to_the_lower_ids() -> None:
    row = np.zeros(100, dtype=np.float32)
    row[50] = 1.0
    drawn = {choose(row, Sampling(1, 50.0, top_k=3), position) for position in range(200)}
    assert drawn == {0, 1, 50}


def test_ties_at_the_edge_of_the_nucleus_go_to_the_lower_ids() -> None:
    row = np.zeros(10, dtype=np.float32)
    drawn = {choose(row, Sampling(1, 1.0, top_p=0.25), position) for position in range(200)}
    assert drawn == {0, 1, 2}


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
