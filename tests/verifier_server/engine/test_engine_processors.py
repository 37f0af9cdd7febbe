"""Logit processors and log probabilities in the engine: drafts, lost slots and continued sessions change nothing."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from specpair.engines.backend import Entry, Rows, TopLogitsSpec
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.sampling.distribution import TokenLogprobs, probabilities, token_logprobs
from specpair.speculation.sampling.row_changes import LogitProcessor
from specpair.speculation.sampling.sampling import Logits, Sampling
from tests.examples import examples
from tests.specpair.speculation import processed
from tests.verifier_server.engine.bench import Bench
from verifier_server.sessions import Session

SCRIPT = Script(seed=4, support=30, sharpness=1.5)
MODEL = ScriptedBackend(SCRIPT)
PROMPT = [256, 9, 9, 2]
SETTINGS = pytest.mark.parametrize("sampling", processed.SETTINGS.values(), ids=processed.SETTINGS)


def plain(sampling: Sampling, count: int) -> list[int]:
    return processed.plain(MODEL.logits_after, PROMPT, count, sampling)


def drafted(bench: Bench, session: Session, seed: int, width: int) -> list[int]:
    """The whole text, with drafts of which some tokens are right."""
    random = np.random.default_rng(seed)
    right = plain(session.spec.sampling, session.limit - session.prompt_len)
    while session.finish_reason is None:
        at = len(session.tokens) - session.prompt_len
        drafts = [each if random.random() < 0.7 else int(random.integers(30)) for each in right[at : at + width]]
        bench.verify(session, len(session.tokens), drafts)
    return session.tokens[session.prompt_len :]


@SETTINGS
@examples(10)
@given(seed=st.integers(0, 2**32 - 1), width=st.integers(0, 6), top_logits=st.booleans())
def test_drafts_do_not_change_the_text(sampling: Sampling, seed: int, width: int, top_logits: bool) -> None:
    backend = ScriptedBackend(SCRIPT, slots=1, has_top_logits=top_logits)
    bench = Bench(backend=backend)
    session = bench.open(PROMPT, max_tokens=30, sampling=sampling)
    assert drafted(bench, session, seed, width) == plain(sampling, 30)


@SETTINGS
def test_a_continued_session_goes_on_as_if_it_had_never_stopped(sampling: Sampling) -> None:
    whole, bench = plain(sampling, 20), Bench(SCRIPT)
    for kept in (1, 7, 19):
        session = bench.open(PROMPT, max_tokens=20, sampling=sampling)
        session.resume(whole[:kept])
        assert drafted(bench, session, kept, 3) == whole


def test_texts_in_one_pass_have_processors_of_their_own() -> None:
    bench = Bench(SCRIPT, slots=3)
    samplings = [*list(processed.SETTINGS.values())[:2], Sampling(3, 0.9)]
    sessions = [bench.open(PROMPT, max_tokens=12, sampling=each) for each in samplings]
    asked = [bench.ask(session, len(PROMPT), until_end=True) for session in sessions]
    bench.run(*asked)
    assert [session.tokens[len(PROMPT) :] for session in sessions] == [plain(each, 12) for each in samplings]


def test_whole_rows_are_asked_for_only_where_they_are_needed() -> None:
    class Recording(ScriptedBackend):
        asked: list[TopLogitsSpec]

        def _extend_top_logits(self, batch: Sequence[Entry], wanted: Sequence[TopLogitsSpec]) -> list[Rows]:
            self.asked = list(wanted)
            return super()._extend_top_logits(batch, wanted)

    backend = Recording(SCRIPT, has_top_logits=True)
    bench = Bench(backend=backend)
    sampled, greedy = Sampling(1, 1.0), Sampling()
    for session, size in (
        (bench.open(PROMPT, sampling=sampled), 258),
        (bench.open(PROMPT, sampling=greedy), 1),
        (bench.open(PROMPT, sampling=Sampling(1, 0.0, min_p=0.5)), 1),
        (bench.open(PROMPT, sampling=greedy, logprobs=0), None),
        (bench.open(PROMPT, sampling=Sampling(1, 0.0, presence_penalty=1.0)), None),
    ):
        bench.prefill(session)
        assert [each.size for each in backend.asked] == [size]


@SETTINGS
@pytest.mark.parametrize("strategy", list(Strategy))
def test_decisions_report_the_processed_distribution(sampling: Sampling, strategy: Strategy) -> None:
    bench = Bench(SCRIPT)
    threshold = 0.3 if strategy is Strategy.THRESHOLD else None
    session = bench.open(PROMPT, sampling=sampling, strategy=strategy, threshold=threshold, explain=True)
    bench.prefill(session)
    bench.verify(session, 5, [3, 4], [{3: 1.0}, {4: 1.0}] if strategy.draws else [])
    drawn = session.rule.sampling
    assert session.details.decisions is not None and len(session.details.decisions) >= 2
    for at, decision in enumerate(filter(None, session.details.decisions)):
        output = session.tokens[4 : 4 + at]
        row = processed.process(MODEL.logits_after([*PROMPT, *output]), drawn, PROMPT, output).astype(np.float32)
        reported = Sampling(0, 1.0) if drawn.greedy else drawn
        p = probabilities(row, reported)
        assert decision.p == pytest.approx(p[decision.token], rel=1e-4)
        if decision.draft is not None:
            assert decision.draft_p == pytest.approx(p[decision.draft], rel=1e-4, abs=1e-12)


def of_the_model(tokens: list[int], top: int) -> list[TokenLogprobs]:
    """Log probabilities of the tokens after the prompt, from rows that nothing has changed."""
    rows = [MODEL.logits_after(tokens[:at]) for at in range(len(PROMPT), len(tokens))]
    return [token_logprobs(row, token, top) for row, token in zip(rows, tokens[len(PROMPT) :], strict=True)]


@pytest.mark.parametrize("top_logits", [False, True])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(2, 0.7, 5), processed.SETTINGS["all"]], ids=str)
def test_logprobs_are_those_of_the_model_s_own_rows(sampling: Sampling, top_logits: bool) -> None:
    bench = Bench(backend=ScriptedBackend(SCRIPT, has_top_logits=top_logits))
    session = bench.open(PROMPT, max_tokens=20, sampling=sampling, logprobs=3)
    drafted(bench, session, 1, 4)
    assert len(session.tokens) == 24
    assert session.details.logprobs == of_the_model(session.tokens, 3)
    assert session.details_of(4, 24).logprobs == session.details.logprobs
    assert session.details_of(7, 9).logprobs == session.details.logprobs[3:5]
    assert session.details_of(4, 24).decisions is None


def test_tokens_of_an_earlier_request_have_no_logprobs() -> None:
    bench = Bench(SCRIPT)
    session = bench.open(PROMPT, max_tokens=8, logprobs=0)
    session.resume(plain(Sampling(), 5))
    answer = bench.verify(session, 9)
    assert answer.details.logprobs == of_the_model(session.tokens, 0)[5:]
    assert session.details_of(7, 10).logprobs == [None, None, *answer.details.logprobs]


class Banned(LogitProcessor):
    def process(self, row: Logits) -> None:
        row[[0, 1, 2, 3, 4, 5, 6]] = -np.inf


def test_a_session_may_have_a_grammar() -> None:
    bench = Bench(SCRIPT)
    session = bench.open(PROMPT, max_tokens=40, sampling=Sampling(3, 1.0, regex="x"), grammars=lambda _: Banned())
    bench.decode(session)
    assert min(session.tokens[4:]) > 6
    free = bench.open(PROMPT, max_tokens=40, sampling=Sampling(3, 1.0))
    assert min(bench.decode(free)) <= 6


def test_a_session_opened_anew_with_other_logprobs_replaces_the_old_one() -> None:
    """The old one has no log probabilities to give."""
    bench = Bench(SCRIPT)
    without, with_three, again = (bench.open(PROMPT, logprobs=each) for each in (None, 3, 3))
    assert without.same_text(with_three)
    assert not without.can_replace(with_three) and not with_three.can_replace(without)
    assert with_three.can_replace(again)
