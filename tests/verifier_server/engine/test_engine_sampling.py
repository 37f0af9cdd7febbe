"""Sampled texts follow the target's distribution, and logit processors apply to them."""

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.engines.backend import Entry, Rows, TopLogitsSpec
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.sampling.distribution import TokenLogprobs, probabilities, token_logprobs
from specpair.speculation.sampling.sampling import Sampling
from tests.specpair.speculation import chi_square, processed
from tests.verifier_server.engine.bench import Bench
from verifier_server.sessions import Session

PROMPT = [256, 9, 9]


SMALL = Script(seed=6, support=4, sharpness=1.0)
SESSIONS = 1500


def probabilities_after(tokens: list[int], temperature: float) -> np.ndarray:
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
            chance *= probabilities_after([*PROMPT, *path[:at]], 0.8)[token]
        joint[path] = chance
    ordered = sorted(joint, key=lambda path: -joint[path])
    common = [path for path in ordered if joint[path] * SESSIONS >= 5]
    rare = ordered[len(common) :]  # too few to test one by one: pooled with the rarest common one
    observed = [counts[path] for path in common[:-1]] + [sum(counts[path] for path in [common[-1], *rare])]
    expected = [joint[path] for path in common[:-1]] + [sum(joint[path] for path in [common[-1], *rare])]
    assert chi_square.fits(observed, expected)
    assert not chi_square.fits(observed[::-1], expected), "the order of outcomes matters to the check"


SCRIPT_PROCESSORS = Script(seed=4, support=30, sharpness=1.5)
MODEL = ScriptedBackend(SCRIPT_PROCESSORS)
PROMPT_PROCESSORS = [256, 9, 9, 2]
SETTINGS = pytest.mark.parametrize("sampling", processed.SETTINGS.values(), ids=processed.SETTINGS)


def processed_text(sampling: Sampling, count: int) -> list[int]:
    return processed.plain(MODEL.logits_after, PROMPT_PROCESSORS, count, sampling)


def drafted(bench: Bench, session: Session, seed: int, width: int) -> list[int]:
    """The whole text, with drafts of which some tokens are right."""
    random = np.random.default_rng(seed)
    right = processed_text(session.spec.sampling, session.limit - session.prompt_len)
    while session.finish_reason is None:
        at = len(session.tokens) - session.prompt_len
        drafts = [each if random.random() < 0.7 else int(random.integers(30)) for each in right[at : at + width]]
        bench.verify(session, len(session.tokens), drafts)
    return session.tokens[session.prompt_len :]


@SETTINGS
def test_a_continued_session_goes_on_as_if_it_had_never_stopped(sampling: Sampling) -> None:
    whole, bench = processed_text(sampling, 20), Bench(SCRIPT_PROCESSORS)
    for kept in (1, 7, 19):
        session = bench.open(PROMPT_PROCESSORS, max_tokens=20, sampling=sampling)
        session.resume(whole[:kept])
        assert drafted(bench, session, kept, 3) == whole


def test_whole_rows_are_asked_for_only_where_they_are_needed() -> None:
    class Recording(ScriptedBackend):
        asked: list[TopLogitsSpec]

        def _extend_top_logits(self, batch: Sequence[Entry], wanted: Sequence[TopLogitsSpec]) -> list[Rows]:
            self.asked = list(wanted)
            return super()._extend_top_logits(batch, wanted)

    backend = Recording(SCRIPT_PROCESSORS, has_top_logits=True)
    bench = Bench(backend=backend)
    sampled, greedy = Sampling(1, 1.0), Sampling()
    for session, size in (
        (bench.open(PROMPT_PROCESSORS, sampling=sampled), 258),
        (bench.open(PROMPT_PROCESSORS, sampling=greedy), 1),
        (bench.open(PROMPT_PROCESSORS, sampling=Sampling(1, 0.0, min_p=0.5)), 1),
        (bench.open(PROMPT_PROCESSORS, sampling=greedy, logprobs=0), None),
        (bench.open(PROMPT_PROCESSORS, sampling=Sampling(1, 0.0, presence_penalty=1.0)), None),
    ):
        bench.prefill(session)
        assert [each.size for each in backend.asked] == [size]


@SETTINGS
@pytest.mark.parametrize("strategy", list(Strategy))
def test_decisions_report_the_processed_distribution(sampling: Sampling, strategy: Strategy) -> None:
    bench = Bench(SCRIPT_PROCESSORS)
    threshold = 0.3 if strategy is Strategy.THRESHOLD else None
    session = bench.open(PROMPT_PROCESSORS, sampling=sampling, strategy=strategy, threshold=threshold, explain=True)
    bench.prefill(session)
    bench.verify(session, 5, [3, 4], [{3: 1.0}, {4: 1.0}] if strategy.draws else [])
    drawn = session.rule.sampling
    assert session.details.decisions is not None and len(session.details.decisions) >= 2
    for at, decision in enumerate(filter(None, session.details.decisions)):
        output = session.tokens[4 : 4 + at]
        row = processed.process(
            MODEL.logits_after([*PROMPT_PROCESSORS, *output]), drawn, PROMPT_PROCESSORS, output
        ).astype(np.float32)
        reported = Sampling(0, 1.0) if drawn.greedy else drawn
        p = probabilities(row, reported)
        assert decision.p == pytest.approx(p[decision.token], rel=1e-4)
        if decision.draft is not None:
            assert decision.draft_p == pytest.approx(p[decision.draft], rel=1e-4, abs=1e-12)


def of_the_model(tokens: list[int], top: int) -> list[TokenLogprobs]:
    """Log probabilities of the tokens after the prompt, from rows that nothing has changed."""
    rows = [MODEL.logits_after(tokens[:at]) for at in range(len(PROMPT_PROCESSORS), len(tokens))]
    return [token_logprobs(row, token, top) for row, token in zip(rows, tokens[len(PROMPT_PROCESSORS) :], strict=True)]


@pytest.mark.parametrize("top_logits", [False, True])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(2, 0.7, 5), processed.SETTINGS["all"]], ids=str)
def test_logprobs_are_those_of_the_model_s_own_rows(sampling: Sampling, top_logits: bool) -> None:
    bench = Bench(backend=ScriptedBackend(SCRIPT_PROCESSORS, has_top_logits=top_logits))
    session = bench.open(PROMPT_PROCESSORS, max_tokens=20, sampling=sampling, logprobs=3)
    drafted(bench, session, 1, 4)
    assert len(session.tokens) == 24
    assert session.details.logprobs == of_the_model(session.tokens, 3)
    assert session.details_of(4, 24).logprobs == session.details.logprobs
    assert session.details_of(7, 9).logprobs == session.details.logprobs[3:5]
    assert session.details_of(4, 24).decisions is None
