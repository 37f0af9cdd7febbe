"""Questions to the target's own head: what it answers, and when it answers nothing."""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.engines.backend import Entry, HeadEntry, Logits
from specpair.engines.errors import BadEntry, EngineFailure
from specpair.grammar.compiling import Grammars
from specpair.protocol.errors import ShuttingDown
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.engine.bench import GREEDY, Bench, plain
from verifier_server.engine.engine import Engine
from verifier_server.engine.head_drafts import HeadQuestion, step_time
from verifier_server.sessions import Session

SCRIPT = Script(seed=3)
PROMPT = [256, 1, 2]
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, Sampling(7, 0.9)], ids=["greedy", "sampled"])


class WrongHead(ScriptedBackend):
    """Its head fails, or returns NaN for the first question."""

    fails = nan = False

    def _extend_head(self, batch: Sequence[HeadEntry]) -> Logits:
        if self.fails:
            raise EngineFailure("the head is gone")
        rows = super()._extend_head(batch)
        if self.nan:
            rows[0] = np.nan
        return rows


def bench_of(script: Script = SCRIPT, depth: int = 3, slots: int = 2) -> Bench:
    return Bench(backend=WrongHead(script, slots=slots, context_length=256, head_depth=depth))


def asked(bench: Bench, *questions: tuple[Session, int, Sequence[int]]) -> list[int | None]:
    """The tokens that the head drafts."""
    found = bench.scheduler.head.answer([HeadQuestion(*each) for each in questions])
    return [None if each is None else each.token for each in found]


@SAMPLINGS
def test_it_drafts_the_next_tokens_of_each_text(sampling: Sampling) -> None:
    bench, text, other = bench_of(), plain(SCRIPT, PROMPT, 9, sampling), plain(SCRIPT, [256, 7], 9, sampling)
    first, second = bench.open(PROMPT, sampling=sampling), bench.open([256, 7], sampling=sampling)
    for session in (first, second):
        bench.prefill(session)
    assert asked(bench, (first, 4, []), (second, 3, other[1:3])) == [text[1], other[3]]
    assert asked(bench, (first, 4, text[1:2])) == [text[2]]
    assert (bench.backend.head_steps, bench.backend.passes) == (2, 2), "a step answers all"
    bench.verify(first, 4, text[1:4])
    assert asked(bench, (first, 8, [])) == [text[5]]


@SAMPLINGS
def test_it_drafts_several_tokens_without_being_asked_for_each(sampling: Sampling) -> None:
    bench, text = bench_of(), plain(SCRIPT, PROMPT, 9, sampling)
    session, other = bench.open(PROMPT, sampling=sampling), bench.open([256, 7], sampling=sampling)
    for each in (session, other):
        bench.prefill(each)
    questions = [HeadQuestion(session, 4, [], steps=5), HeadQuestion(other, 3, [], steps=1)]
    chain, single = bench.scheduler.head.answer(questions)
    tokens = []
    while chain is not None:
        tokens.append(chain.token)
        chain = chain.behind
    assert tokens == text[1:4], "it drafts no deeper than three tokens"
    assert single is not None and single.behind is None and single.length == 1


def test_it_drafts_nothing_behind_an_end_token() -> None:
    ending = Script(seed=5, end_bias=6.0)
    bench, text = bench_of(ending, depth=12), plain(ending, PROMPT, 200)
    session = bench.open(PROMPT)
    bench.prefill(session)
    [chain] = bench.scheduler.head.answer([HeadQuestion(session, 4, [], steps=12)])
    assert chain is not None and chain.length == min(12, len(text) - 1)


def test_it_drafts_as_often_right_as_its_agreement_says() -> None:
    bench = bench_of(replace(SCRIPT, head_agreement=0.6))
    session, right = bench.open(), 0
    bench.prefill(session)
    for _ in range(200):
        position = len(session.tokens)
        [token] = asked(bench, (session, position, []))
        bench.verify(session, position)
        right += token == session.tokens[position]
    assert 100 < right < 140


def test_it_answers_nothing_where_it_is_not_in_step() -> None:
    bench, text = bench_of(), plain(SCRIPT, PROMPT, 9)
    session, unknown = bench.open(PROMPT, max_tokens=4), bench.open(PROMPT)
    assert asked(bench, (session, 3, [])) == [None], "it has no slot yet"
    bench.prefill(session)
    other = bench.open([256, 7])
    bench.prefill(other)
    assert asked(bench, (unknown, 4, []), (session, 5, []), (other, 3, [])) == [None, None, bench.decode(other)[1]]
    assert asked(bench, (session, 3, text[:1])) == [None], "the engine has gone on"
    assert asked(bench, (session, 4, text[1:3])) == [text[3]]
    assert asked(bench, (session, 4, text[1:4])) == [None], "so deep it does not draft"
    steps = bench.backend.head_steps
    bench.verify(session, 4, text[1:3])
    assert session.finish_reason == "length" and asked(bench, (session, 7, [])) == [None]
    assert bench.backend.head_steps == steps, "it is not asked in vain"


def test_it_answers_again_once_a_slot_that_was_taken_is_read_again() -> None:
    bench, text = bench_of(slots=1), plain(SCRIPT, PROMPT, 9)
    session, other = bench.open(PROMPT), bench.open([256, 7])
    bench.prefill(session)
    bench.prefill(other)
    assert asked(bench, (session, 4, [])) == [None]
    bench.verify(session, 4)
    assert asked(bench, (session, 5, [])) == [text[2]]
    bench.engine.forget(session)
    bench.engine.step()
    assert asked(bench, (session, 5, [])) == [None]


@SAMPLINGS
def test_forced_tokens_that_no_pass_has_read_come_before_what_it_drafts(sampling: Sampling) -> None:
    schema = {"type": "array", "items": {"enum": ["one", "other"]}, "minItems": 3, "maxItems": 3}
    sampling, script = replace(sampling, json_schema=schema), replace(SCRIPT, sharpness=1.5)
    alone = bench_of(script, depth=0)
    text = alone.decode(alone.open(PROMPT, sampling=sampling, grammars=Grammars(alone.backend.vocabulary)))
    pendings = set()
    for depth in (4, 12):
        bench = bench_of(script, depth)
        session = bench.open(PROMPT, sampling=sampling, grammars=Grammars(bench.backend.vocabulary))
        bench.prefill(session)
        while session.finish_reason is None:
            position, pending = len(session.tokens), session.pending
            pendings.add(pending)
            expected = text[position - 3] if pending <= depth else None
            assert asked(bench, (session, position, [])) == [expected]
            if pending < depth and expected is not None and position + 1 < 3 + len(text):
                assert asked(bench, (session, position, [expected])) == [text[position - 2]]
            bench.verify(session, position)
        assert session.tokens[3:] == text
    assert all(4 < each < 12 for each in pendings)


def test_a_bad_row_leaves_the_other_texts_alone(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_of()
    first, second = bench.open(PROMPT), bench.open([256, 7])
    for session in (first, second):
        bench.prefill(session)
    bench.backend.nan = True  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING):
        found = asked(bench, (first, 4, []), (second, 3, []))
    assert found == [None, plain(SCRIPT, [256, 7], 2)[1]]
    assert [record.__dict__["session_id"] for record in caplog.records] == [first.id]
    assert bench.decode(first) == plain(SCRIPT, PROMPT, 253)


def test_an_engine_answers_between_passes_and_nothing_where_the_head_fails() -> None:
    backend = WrongHead(SCRIPT, head_depth=2)
    bench, text = Bench(backend=backend), plain(SCRIPT, PROMPT, 5)
    session = bench.open(PROMPT)
    bench.prefill(session)
    engine = Engine(bench.scheduler)
    engine.start()
    question = HeadQuestion(session, 4, [])
    [found] = engine.ask_head([question])
    assert found is not None and found.token == text[1]
    backend.fails = True
    assert engine.ask_head([question, question._replace(position=9)]) == [None, None]
    engine.stop()
    with pytest.raises(ShuttingDown):
        engine.ask_head([question])


def test_who_asks_while_the_engine_stops_is_answered() -> None:
    for _ in range(20):
        bench = Bench(backend=WrongHead(SCRIPT, head_depth=2))
        session = bench.open(PROMPT)
        bench.prefill(session)
        engine = Engine(bench.scheduler)
        engine.start()
        with ThreadPoolExecutor(1) as thread:
            asking = thread.submit(engine.ask_head, [HeadQuestion(session, 4, [])])
            engine.stop()
            error = asking.exception(20)
        assert isinstance(error, ShuttingDown) if error is not None else len(asking.result()) == 1


def test_a_step_is_timed_where_there_is_a_head() -> None:
    times = iter([0.0, 3.0, 3.0, 4.0, 4.0, 6.0])
    backend = ScriptedBackend(SCRIPT, head_depth=2)
    assert step_time(backend, lambda: next(times)) == 0.5, "a draft of two tokens took 1"
    assert backend.held[0] == [] and step_time(ScriptedBackend(SCRIPT), lambda: next(times)) == 0.0


def test_the_contract_of_the_head_is_checked() -> None:
    backend = ScriptedBackend(SCRIPT, slots=2, head_depth=2)
    backend.extend([Entry(0, 0, [256, 1, 2], 3)])
    for slot, start, tail, why in (
        (0, 4, [1], "cannot draft at 4 of 3"),
        (0, 3, [], "1 to 2"),
        (0, 3, [1] * 3, "1 to 2"),
    ):
        with pytest.raises(BadEntry, match=why):
            backend.extend_head([HeadEntry(slot, start, tail)])
    with pytest.raises(BadEntry, match="two tails"):
        backend.extend_head([HeadEntry(0, 3, [1]), HeadEntry(0, 3, [2])])
    [row] = backend.extend_head([HeadEntry(0, 2, [2, 9])])
    assert (row == backend.logits_after([256, 1, 2, 9])).all()
    with pytest.raises(EngineFailure, match="behind 2 tokens, and 3 are used"):
        backend.extend([Entry(0, 3, [9], 0)])
