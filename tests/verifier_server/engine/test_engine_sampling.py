"""At a temperature above 0: the text depends on the seed alone, and is an exact sample of the target."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from specpair.speculation.sampling.sampling import Sampling
from tests.examples import examples
from tests.specpair.speculation import chi_square
from tests.verifier_server.engine.bench import Bench, plain

SCRIPT = Script(seed=4, support=60, sharpness=1.5)
PROMPT = [256, 9, 9]


def through_drafts(sampling: Sampling, agreement: float, width: int, count: int = 30) -> list[int]:
    """A text verified with drafts of a model that agrees with the target to a degree, sampled with shared noise."""
    bench = Bench(SCRIPT, slots=1)
    drafter = ScriptedBackend(Script(seed=4, support=60, sharpness=1.5, agreement=agreement))
    session = bench.open(PROMPT, max_tokens=count, sampling=sampling)
    while session.finish_reason is None:
        drafts: list[int] = []
        while len(drafts) < width:
            drafts += plain(drafter.script, session.tokens + drafts, 1, sampling)
        bench.verify(session, len(session.tokens), drafts)
    return session.tokens[3:]


@examples(20)
@given(
    st.integers(0, 2**53 - 1),
    st.sampled_from([0.3, 1.0, 3.0]),
    st.sampled_from([(0, 1.0), (5, 1.0), (0, 0.7), (20, 0.9)]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 4),
)
def test_drafts_of_any_quality_give_the_same_text(
    seed: int, temperature: float, filters: tuple[int, float], agreement: float, width: int
) -> None:
    sampling = Sampling(seed, temperature, *filters)
    assert through_drafts(sampling, agreement, width, 12) == plain(SCRIPT, PROMPT, 12, sampling)


SMALL = Script(seed=6, support=4, sharpness=1.0)
SESSIONS = 1500


def probabilities(tokens: list[int], temperature: float) -> np.ndarray:
    """The target's next-token distribution over the four ids of its support."""
    scaled = ScriptedBackend(SMALL).logits_after(tokens)[:4].astype(np.float64) / temperature
    mass = np.exp(scaled - scaled.max())
    return mass / mass.sum()


@pytest.fixture(scope="module")
def sampled() -> list[list[int]]:
    """Three tokens of each of many sessions that differ only in their seed, with drafts that are rarely accepted."""
    bench = Bench(SMALL, slots=4)
    texts = []
    for seed in range(SESSIONS):
        session = bench.open(PROMPT, sampling=Sampling(seed, 0.8), max_tokens=3)
        position = 3
        while session.finish_reason is None:
            position += len(bench.verify(session, position, [seed % 4, seed // 4 % 4]).tokens)
        texts.append(session.tokens[3:])
    return texts


@pytest.mark.parametrize("length", [1, 2, 3])
def test_sampled_texts_follow_the_target_s_joint_distribution(sampled: list[list[int]], length: int) -> None:
    """The joint distribution of the first tokens is computed from the model itself."""
    counts = Counter(tuple(text[:length]) for text in sampled)
    joint = {}
    for path in itertools.product(range(4), repeat=length):
        chance = 1.0
        for at, token in enumerate(path):
            chance *= probabilities([*PROMPT, *path[:at]], 0.8)[token]
        joint[path] = chance
    ordered = sorted(joint, key=lambda path: -joint[path])
    common = [path for path in ordered if joint[path] * SESSIONS >= 5]
    rare = ordered[len(common) :]  # too few to test one by one: pooled with the rarest common one
    observed = [counts[path] for path in common[:-1]] + [sum(counts[path] for path in [common[-1], *rare])]
    expected = [joint[path] for path in common[:-1]] + [sum(joint[path] for path in [common[-1], *rare])]
    assert chi_square.fits(observed, expected)
    assert not chi_square.fits(observed[::-1], expected), "the order of outcomes matters to the check"
