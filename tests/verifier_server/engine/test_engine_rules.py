"""The rules for one session: positions, stale drafts, end tokens, limits, and what a pass reads and takes."""

from dataclasses import replace

import numpy as np
import pytest

from backends.scripted import END, Script
from specpair.protocol.errors import PositionBeyondCommitted, PositionInsidePrompt, TooManyDrafts
from tests.verifier_server.engine.bench import Bench, plain
from verifier_server.sessions import Session

SCRIPT = Script(seed=8)
PROMPT = [256, 1, 2, 3]
TEXT = plain(SCRIPT, PROMPT, 40)


@pytest.fixture
def bench() -> Bench:
    return Bench(SCRIPT)


@pytest.fixture
def session(bench: Bench) -> Session:
    session = bench.open(PROMPT, max_tokens=40)
    assert bench.prefill(session).tokens == TEXT[:1]
    return session


def wrong(at: int) -> int:
    return (TEXT[at] + 1) % 256


def test_a_round_feeds_only_the_pending_token_and_the_drafts(bench: Bench, session: Session) -> None:
    fed = bench.backend.fed
    bench.verify(session, 5, [TEXT[1], wrong(2), 0, 0])
    assert bench.backend.fed - fed == 5
    bench.verify(session, 7, [TEXT[3]])
    assert bench.backend.fed - fed == 7, "rejected drafts are rolled back, accepted ones are not fed again"


def test_overlapping_stale_and_contained_drafts(bench: Bench, session: Session) -> None:
    bench.verify(session, 5, TEXT[1:5])  # 10 committed
    overlapping = bench.verify(session, 7, TEXT[3:9])
    assert (overlapping.tokens, overlapping.accepted, overlapping.judged) == (TEXT[3:10], 6, 3)
    passes = bench.backend.passes
    stale = bench.verify(session, 6, [TEXT[2], wrong(3), 5, 5])
    assert (stale.tokens, stale.accepted, stale.judged) == (TEXT[2:10], 1, 0)
    contained = bench.verify(session, 6, TEXT[2:5])
    assert (contained.tokens, contained.accepted, contained.judged) == (TEXT[2:10], 3, 0)
    assert bench.backend.passes == passes


def test_impossible_positions_are_refused(bench: Bench, session: Session) -> None:
    for position, kind in ((0, PositionInsidePrompt), (3, PositionInsidePrompt), (6, PositionBeyondCommitted)):
        with pytest.raises(kind) as caught:
            bench.verify(session, position, [1])
        assert caught.value.details == {"total_tokens": 5}
    assert bench.verify(session, 5).tokens == TEXT[1:2], "and the session is unharmed"


def test_max_drafts_applies_to_the_part_beyond_the_committed_tokens(bench: Bench, session: Session) -> None:
    for at in range(1, 11):
        bench.verify(session, 4 + at)
    known = TEXT[:11]
    assert bench.verify(session, 4, [*known, *[0] * 32]).judged == 28, "the last of 40 positions gets a bonus token"
    with pytest.raises(TooManyDrafts, match="33 new draft tokens: this verifier judges at most 32") as caught:
        bench.verify(session, 4, [*TEXT[:12], *[0] * 33])
    assert caught.value.details == {"limit": 32}


ENDING = replace(SCRIPT, end_bias=9.0)
SHORT = plain(ENDING, PROMPT, 200)


def test_an_end_token_ends_the_text_and_nothing_is_committed_after_it() -> None:
    assert 2 < len(SHORT) < 200
    assert SHORT[-1] == END
    bench = Bench(ENDING)
    session = bench.open(PROMPT)
    answer = bench.verify(session, 4, [*SHORT, 1, 2])
    assert (answer.tokens, answer.accepted, answer.finish_reason) == (SHORT, len(SHORT), "stop")
    for position, drafts in ((4, []), (4 + len(SHORT), [5]), (5, [*SHORT[1:], 7])):
        after = bench.verify(session, position, drafts)
        assert (after.tokens, after.finish_reason) == (SHORT[position - 4 :], "stop")
        assert after.judged == 0
    with pytest.raises(PositionBeyondCommitted):
        bench.verify(session, 5 + len(SHORT))


def test_times_are_measured_on_the_given_clock() -> None:
    now = [100.0]

    class Slow(type(Bench().backend)):  # type: ignore[misc]
        def logits_after(self, tokens: list[int]) -> np.ndarray:
            now[0] += 0.25
            return super().logits_after(tokens)

    bench = Bench(backend=Slow(SCRIPT), clock=lambda: now[0])
    asked = bench.ask(bench.open(PROMPT), 4, TEXT[:1])
    now[0] += 3.0
    bench.run(asked)
    assert (asked.answer.queue, asked.answer.forward) == (3.0, 0.5)


def test_drafts_too_long_for_one_pass_are_refused() -> None:
    bench = Bench(SCRIPT, batch=8, max_drafts=64)
    session = bench.open([1] * 5)
    assert bench.engine.info.max_drafts == 7
    assert bench.verify(session, 5, [0] * 7).judged == 7
    asked = bench.ask(session, 5, [*session.tokens[5:], *[0] * 8])
    bench.run(asked, steps=3)
    with pytest.raises(Exception, match="8 new draft tokens: this verifier judges at most 7 at once"):
        _ = asked.answer
