"""Seeds: any integer is taken, choice 0 keeps a seed that the noise takes, and the others differ."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.openai_api.messages.options import seed_of
from specpair.speculation.sampling import gumbel


@given(st.integers(), st.integers(0, 200))
def test_every_seed_becomes_one_that_the_noise_takes(seed: int, choice: int) -> None:
    assert 0 <= seed_of(seed, choice) < gumbel.SEED_LIMIT


@given(st.integers(0, gumbel.SEED_LIMIT - 1))
def test_choice_0_has_the_seed_itself_and_the_others_have_their_own(seed: int) -> None:
    assert seed_of(seed) == seed
    assert len({seed_of(seed, choice) for choice in range(20)}) == 20


def test_derived_seeds_are_stable() -> None:
    assert seed_of(7, 1) == seed_of(7, 1) != seed_of(8, 1)
    assert seed_of(-1) != seed_of(2**64 - 1) != seed_of(2**64)
