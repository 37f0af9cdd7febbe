"""The verifier's scheduler on every engine that promises equal bits, or whose bits differ far less than its tokens.

With drafts, retries and evictions over more sessions than slots, each text equals plain decoding in a slot alone.
"""

from collections.abc import Sequence

import pytest

from specpair.engines.kept_texts import pays_to_cut
from specpair.speculation.draft import Draft
from specpair.speculation.sampling.sampling import Sampling, choose
from specpair.speculation.text_options import TextSpec
from tests.conformance.conftest import Subject
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.engine.engine import Engine
from verifier_server.engine.scheduler import Scheduler
from verifier_server.sessions import Session

LENGTH = 24
_NEAR_TIE = 5e-5  # on random logits with a spread of 1 or more, no two of which are that near in these texts


def alone(subject: Subject, prompt: Sequence[int], sampling: Sampling) -> list[int]:
    """Plain decoding in one slot, token by token, to the end or length."""
    subject.backend.release(0)
    tokens, row = list(prompt), subject.feed(0, 0, prompt)[-1]
    while len(tokens) < len(prompt) + LENGTH and tokens[-1] not in subject.backend.vocabulary.ends:
        tokens.append(choose(row, sampling, len(tokens)))
        row = subject.feed(0, len(tokens) - 1, tokens[-1:])[0]
    subject.backend.release(0)
    return tokens


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_five_sessions_on_three_slots_equal_plain_decoding(subject: Subject, temperature: float) -> None:
    if subject.tolerance > _NEAR_TIE:
        pytest.skip("this engine's last bits depend on its batches, so that near-ties may be decided either way")
    prompts = [subject.ids[at : at + 5 + 13 * number] for number, at in enumerate((0, 20, 9, 3, 40))]
    samplings = [Sampling(number, temperature) for number in range(5)]
    texts = [alone(subject, prompt, sampling) for prompt, sampling in zip(prompts, samplings, strict=True)]
    ends = subject.backend.vocabulary.ends
    sessions = [
        Session(str(number), list(prompt), len(prompt), TextSpec.of(samplings[number]), len(prompt) + LENGTH, ends)
        for number, prompt in enumerate(prompts)
    ]
    engine = Engine(Scheduler(subject.backend, max_drafts=8, batching_window=0.0))
    answered: list[object] = []
    for rounds in range(1, LENGTH + 1):  # each commits at least one token in every session, or ends it
        for number, session in enumerate(sessions):
            at = len(session.tokens)
            wrong = subject.ids[rounds % 50]
            drafts = [*texts[number][at : at + (rounds + number) % 4], wrong, wrong]
            engine.submit(Request(session, Draft.chain(at, drafts), answered.append))
            engine.submit(Request(session, Draft.chain(at, drafts), answered.append))  # a retry that overtook its reply
        for _ in range(10):
            engine.step()
        assert len(answered) == 10 * rounds
    assert all(session.finish_reason in ("length", "stop") for session in sessions)
    assert [session.tokens for session in sessions] == texts
    assert all(isinstance(answer, Answer) for answer in answered)


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_a_prompt_that_begins_like_an_ended_text_goes_on_as_a_cold_one(subject: Subject, turn: int) -> None:
    """The same prompt again; its next turn; a branch that takes another way in the middle."""
    if subject.tolerance > _NEAR_TIE:
        pytest.skip("this engine's last bits depend on its batches, so that near-ties may be decided either way")
    begin = subject.ids[:30]
    engine = Engine(Scheduler(subject.backend, max_drafts=8, batching_window=0.0))

    def written(prompt: Sequence[int]) -> Session:
        spec, ends = TextSpec(seed=0), subject.backend.vocabulary.ends
        session = Session("text", list(prompt), len(prompt), spec, len(prompt) + LENGTH, ends)
        answers: list[object] = []
        engine.submit(Request(session, Draft(len(prompt)), answers.append, until_end=True))
        while session.finish_reason is None:
            engine.step()
        return session

    first = alone(subject, begin, Sampling())
    prompt = (begin, [*first, *subject.ids[:7]], [*begin[:-9], *subject.ids[-7:]])[turn]
    cold = alone(subject, prompt, Sampling())
    assert written(begin).tokens == first
    shared = (len(begin) - 1, len(first) - 1, len(begin) - 9)[turn]
    reused = pays_to_cut(subject.backend, 0, shared)
    again = written(prompt)
    assert again.tokens == cold
    assert again.cached == (shared if reused else 0)
