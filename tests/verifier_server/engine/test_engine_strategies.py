"""Each strategy in the engine: committed tokens, retries, overlapping requests, decisions."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from specpair.engines.backend import Entry
from specpair.protocol.errors import OverlapRefused
from specpair.speculation.acceptance.draft_probs import Weights, drawn_from, propose
from specpair.speculation.acceptance.judge import Rule, explain, judge
from specpair.speculation.acceptance.strategies import Strategy, effective_sampling
from specpair.speculation.draft import Draft, chain
from specpair.speculation.sampling.sampling import Logits, Sampling
from tests.verifier_server.engine.bench import Asked, Bench, plain
from verifier_server.engine.composer import BatchItem
from verifier_server.engine.draft_credit import DraftCredit
from verifier_server.engine.sequence_state import SequenceState
from verifier_server.sessions import Session

SCRIPT = Script(seed=4, sharpness=1.0, support=12)
DRAFTER = ScriptedBackend(Script(seed=4, sharpness=1.0, support=12, agreement=0.7))
PROMPT = [256, 1, 2, 3]
WARM = Sampling(6, 0.9, 10, 0.97)
ENDS = frozenset({257})
EACH = pytest.mark.parametrize("strategy", Strategy)
ONE_AT_A_TIME = pytest.mark.parametrize("strategy", [Strategy.PROBABILISTIC, Strategy.THRESHOLD])
TOP_LOGITS = pytest.mark.parametrize("has_top_logits", [False, True], ids=["rows", "top logits"])


def opened(
    bench: Bench, strategy: Strategy, sampling: Sampling = WARM, limit: int = 60, explain: bool = False
) -> Session:
    threshold = 0.1 if strategy is Strategy.THRESHOLD else None
    session = bench.open(
        PROMPT, sampling=sampling, strategy=strategy, max_tokens=limit, threshold=threshold, explain=explain
    )
    bench.prefill(session)
    return session


def propose_drafts(tokens: Sequence[int], sampling: Sampling, count: int) -> tuple[list[int], list[Weights]]:
    """Draft tokens after a text, and the distributions they were drawn from."""
    drafts: list[int] = []
    proposals: list[Weights] = []
    for _ in range(count):
        text = [*tokens, *drafts]
        proposals.append(propose(DRAFTER.logits_after(text), sampling))
        drafts.append(drawn_from(proposals[-1], sampling.seed, len(text)))
    return drafts, proposals


@EACH
@TOP_LOGITS
@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=8), temperature=st.sampled_from([0.0, 0.9]))
def test_the_engine_commits_what_the_strategy_s_rule_accepts(
    strategy: Strategy, has_top_logits: bool, counts: list[int], temperature: float
) -> None:
    bench = Bench(backend=ScriptedBackend(SCRIPT, slots=2, context_length=256, has_top_logits=has_top_logits))
    sampling = Sampling(6, temperature, 10, 0.97)
    session = opened(bench, strategy, sampling, explain=True)
    rule = Rule(strategy, effective_sampling(strategy, sampling), 0.1 if strategy is Strategy.THRESHOLD else 0.0)
    for count in counts:
        before = list(session.tokens)
        drafts, proposals = propose_drafts(before, sampling, count)
        sent = proposals if strategy is Strategy.PROBABILISTIC else []
        rows = [bench.backend.logits_after([*before, *drafts[:at]]) for at in range(count + 1)]
        rulings = judge(chain(drafts, sent), rows, rule, len(before), ENDS)
        answer = bench.verify(session, len(before), drafts, sent)
        assert answer.tokens == [each.token for each in rulings]
        decisions = explain(rule, rulings, chain(drafts, sent), rows, len(before))
        assert answer.details.decisions == decisions
        assert answer.accepted == sum(each.verdict == "accepted" for each in decisions)
    assert session.details.decisions is not None
    assert [each.token for each in filter(None, session.details.decisions)] == session.tokens[len(PROMPT) :]


@EACH
def test_a_retry_gets_the_same_answer(strategy: Strategy) -> None:
    """With greedy the committed token may equal the rejected draft token: even so a retry runs nothing."""
    bench = Bench(SCRIPT)
    session = opened(bench, strategy, explain=True)
    asked: list[tuple[int, list[int], list[Weights]]] = []
    for _ in range(12):
        position = len(session.tokens)
        drafts, proposals = propose_drafts(session.tokens, WARM, 3)
        if strategy is Strategy.GREEDY:
            drafts = plain(SCRIPT, session.tokens, 3)
        sent = proposals if strategy is Strategy.PROBABILISTIC else []
        first = bench.verify(session, position, drafts, sent)
        passes = bench.backend.passes
        again = bench.verify(session, position, drafts, sent)
        assert bench.backend.passes == passes
        assert (again.tokens, again.accepted, again.details) == (first.tokens, first.accepted, first.details)
        assert again.judged == 0
        asked.append((position, drafts, sent))
    committed, passes = list(session.tokens), bench.backend.passes
    for position, drafts, sent in asked:  # late duplicates of older requests, too
        assert bench.verify(session, position, drafts, sent).tokens == committed[position:]
    assert (session.tokens, bench.backend.passes) == (committed, passes)


@ONE_AT_A_TIME
def test_a_draft_that_arrives_while_another_is_judged_is_refused_or_answered(strategy: Strategy) -> None:
    class Busy(ScriptedBackend):
        """While it runs the pass of the second token, requests arrive; one of them starts after that token."""

        def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
            if batch[0].start == 4 and not came:
                came.extend(bench.ask(session, at, drafts, proposals=proposals) for at, drafts, proposals in late)
            return super()._forward(batch)

    came: list[Asked] = []
    second = plain(SCRIPT, PROMPT, 2, WARM)[1]
    sure = [{second: 1.0}, {3: 1.0}] if strategy is Strategy.PROBABILISTIC else []
    late = [(6, [3], sure[1:]), (5, [second, 3], sure), (5, [], [])]
    bench = Bench(backend=Busy(SCRIPT, slots=2, context_length=256))
    session = opened(bench, strategy)
    first = bench.ask(session, 5)
    bench.run(first)
    bench.run(*came)
    beyond, other, same = came
    assert isinstance(beyond.results[0], OverlapRefused), "had it arrived sooner, its position would have been too high"
    assert first.answer.tokens == other.answer.tokens == same.answer.tokens == session.tokens[5:] == [second]
    assert bench.verify(session, *late[0]).judged == 1, "now it follows the other"


@ONE_AT_A_TIME
def test_a_cancelled_draft_does_not_block_others(strategy: Strategy) -> None:
    bench = Bench(SCRIPT)
    session = opened(bench, strategy)
    drafts, proposals = propose_drafts(session.tokens, WARM, 3)
    left = bench.ask(session, 5, drafts, proposals=proposals if strategy is Strategy.PROBABILISTIC else [])
    left.request.cancelled = True
    other = bench.ask(session, 5)
    bench.run(other)
    assert len(other.answer.tokens) == 1


def test_a_draft_cut_at_the_limit_keeps_its_distributions() -> None:
    bench = Bench(SCRIPT)
    session = opened(bench, Strategy.PROBABILISTIC, limit=4)
    drafts, proposals = propose_drafts(session.tokens, WARM, 6)
    asked = bench.ask(session, 5, drafts, proposals=proposals)
    assert asked.request.compare(8, first=True)
    part = BatchItem(SequenceState(session, DraftCredit()), asked.request, [asked.request], asked.request.fresh)
    assert part.fresh == Draft.chain(5, drafts[:2], proposals[:2])
    bench.run(asked)
