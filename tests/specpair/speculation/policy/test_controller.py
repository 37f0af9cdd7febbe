"""The controller decides what to draft and when to send it, from the events that it is given."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from specpair.speculation.acceptance.token_sources import SelfContinued
from specpair.speculation.draft import Draft, DraftSource
from specpair.speculation.drafting.acceptance_model import AcceptanceModel
from specpair.speculation.drafting.lookups import Lookups
from specpair.speculation.drafting.node_selection import DraftStep
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms, RejectionPolicy, Schedule
from specpair.speculation.policy.timing import LatencyModel
from specpair.speculation.policy.verifier_timeline import InFlightDraft
from specpair.speculation.sampling.row_changes import LogitProcessor, following
from specpair.speculation.sampling.top_logits import Logits

ALL = Mechanisms()
WAITING = replace(ALL, self_continue=False)
END = 999


def _latencies(link: float = 0.02, draft: float = 0.002, step: float = 0.05) -> LatencyModel:
    latencies = LatencyModel([step, step + 0.001, step + 0.002])
    latencies.exchanged(link, 0.0, 0.0)
    latencies.drafted(1, draft)
    return latencies


def _controller(
    mechanisms: Mechanisms = WAITING, latencies: LatencyModel | None = None, **options: Any
) -> SpeculationController:
    """A controller behind a prompt of three tokens and the first generated one. The drafter counts up from there."""
    length = DraftLength(options.pop("length", None), options.pop("max_drafts", 64))
    limit, next_in = options.pop("limit", 1000), options.pop("next_in", 0.0)
    options = {"width": 6, "mechanisms": mechanisms, **options}
    tokens, estimates = [10, 11, 12, 13], Estimates(latencies or _latencies(), AcceptanceModel())
    controller = SpeculationController(tokens, limit, frozenset({END}), estimates, length, **options)
    controller.opened(0.0, next_in)
    return controller


def _draft(controller: SpeculationController, now: float) -> DraftStep | None:
    """Run a draft step, if one is due: each draft token is the last token plus 1, the runner-up plus 2."""
    step = controller.next_step(now)
    if step is not None:
        before = [[*controller.known[: step.length], *tail][-1] for tail in step.tails]
        proposals = [Proposal(last + 1, 0.9, last + 2 if step.runners_up else None) for last in before]
        controller.drafted(proposals, len(step.nodes), now + 0.002)
    return step


def _answer(
    controller: SpeculationController,
    in_flight_draft: InFlightDraft,
    tokens: list[int],
    now: float,
    judged: int | None = None,
    step: float = 0.05,
) -> list[int]:
    controller.answered(in_flight_draft, len(in_flight_draft.draft) if judged is None else judged, 0.0, step, now)
    new = controller.committed(in_flight_draft.draft.position, tokens, False, now)
    controller.reflect()
    return new


def _sent(controller: SpeculationController, now: float) -> InFlightDraft:
    in_flight_draft = controller.next_draft(now)
    assert in_flight_draft is not None
    return in_flight_draft


@pytest.mark.parametrize("length", [0, 1, 5])
def test_lockstep_drafts_then_sends_then_waits(length: int) -> None:
    controller, now = _controller(LOCKSTEP, length=length), 0.0
    for _ in range(length):
        assert controller.next_draft(now) is None
        assert _draft(controller, now) is not None
        now += 0.002
    in_flight_draft = _sent(controller, now)
    assert in_flight_draft.draft.ids == list(range(14, 14 + length)) and in_flight_draft.draft.position == 4
    assert controller.next_draft(now) is None and controller.next_step(now) is None
    assert controller.schedule is Schedule.LOCKSTEP
    assert _answer(controller, in_flight_draft, [*in_flight_draft.draft.ids, 77], now + 0.07) == [
        *in_flight_draft.draft.ids,
        77,
    ]
    assert controller.known == [10, 11, 12, 13, *in_flight_draft.draft.ids, 77]


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_drafts_in_flight_are_limited(in_flight: int) -> None:
    controller, now, drafts_in_flight = (
        _controller(replace(WAITING, in_flight=in_flight), _latencies(link=0.3), length=2),
        0.0,
        [],
    )
    while now < 0.2:
        if (in_flight_draft := controller.next_draft(now)) is not None:
            drafts_in_flight.append(in_flight_draft)
        _draft(controller, now)
        now += 0.002
    assert len(drafts_in_flight) == in_flight
    assert [len(in_flight_draft.draft) for in_flight_draft in drafts_in_flight] == [
        2 + 3 * number for number in range(in_flight)
    ], "each carries the whole path from the known text, and two tokens beyond the last one's bonus token"


@pytest.mark.parametrize("mechanisms", [LOCKSTEP, WAITING])
def test_nothing_is_drafted_or_sent_for_the_last_position(mechanisms: Mechanisms) -> None:
    controller, now, deepest = _controller(mechanisms, length=9, limit=8), 0.0, 0
    while (in_flight_draft := controller.next_draft(now)) is None:
        step = _draft(controller, now)
        assert step is not None
        deepest, now = max(deepest, *(len(tail) for tail in step.tails)), now + 0.002
    assert len(in_flight_draft.draft) == 3 and deepest == 2, "four positions are left, the last is the target's"
    assert _answer(controller, in_flight_draft, [*in_flight_draft.draft.ids, 5], now + 0.07)[-1] == 5


def test_committed_returns_only_new_tokens() -> None:
    controller = _controller()
    assert controller.committed(4, [14, 15], False, 0.001) == [14, 15]
    assert controller.committed(4, [14, 15, 16], False, 0.002) == [16]
    assert controller.committed(3, [13, 14], False, 0.003) == []
    assert controller.known == [10, 11, 12, 13, 14, 15, 16]


def test_tokens_beyond_a_gap_are_ignored() -> None:
    controller = _controller()
    assert controller.committed(6, [16], False, 0.001) == []
    assert controller.committed(4, [14, 15, 16, 17], False, 0.002) == [14, 15, 16, 17]


def test_draft_step_on_a_rejected_path_has_no_effect() -> None:
    controller = _controller()
    assert _draft(controller, 0.0) is not None
    late = controller.next_step(0.002)
    assert late is not None and [14] in late.tails
    assert controller.committed(4, [77], False, 0.003) == [77]
    assert controller.drafted([Proposal(1, 0.9)] * len(late.nodes), len(late.nodes), 0.004) == 0.002
    step = controller.next_step(0.004)
    assert step is not None and (step.tails, step.length) == ([[]], 5)


def test_verifier_that_waits_in_vain_is_told_to_self_continue() -> None:
    """The verifier delays its step for a draft that was announced. By now no draft is worth waiting for."""
    controller, now = _controller(ALL, _latencies(link=0.002, draft=0.004, step=0.05)), 0.0
    for _ in range(12):
        controller.committed(len(controller.known), [0], False, now)
        _draft(controller, now)  # always rejected
        controller.reflect()
        now += 0.05
    in_flight_draft = InFlightDraft(Draft.chain(len(controller.known), [1, 2]), now, RejectionPolicy(next_in=0.005))
    controller.drafts_in_flight.append(in_flight_draft)
    _answer(controller, in_flight_draft, [0], now + 0.052)
    report = _sent(controller, now + 0.052)
    assert report.draft.ids == [] and report.draft.position == len(controller.known)


def test_self_continuing_verifier_gets_a_report_from_time_to_time() -> None:
    """With draft length 0, all requests are empty: the first says not to wait, the later ones acknowledge tokens."""
    controller, reports = _controller(ALL, length=0), []
    for hundredths in range(200):
        now = hundredths / 100
        if now and not hundredths % 10:
            controller.committed(len(controller.known), [0], False, now)
            controller.reflect()
        in_flight_draft = controller.next_draft(now)
        if in_flight_draft is not None:
            assert in_flight_draft.draft.ids == [] and in_flight_draft.draft.position == len(controller.known)
            reports.append(now)
            controller.answered(in_flight_draft, 0, 0.0, 0.0, now + 0.02)
            controller.committed(in_flight_draft.draft.position, [], False, now + 0.02)
    assert reports == [0.0, 0.5, 1.0, 1.5]
    wake = controller.wake_at(1.6)
    assert wake is not None and 1.6 < wake <= 2.0
    assert controller.schedule is Schedule.SELF_CONTINUED


class KeysOnly(LogitProcessor):
    """Lets three tokens follow each multiple of 100 in one way only."""

    limits: ClassVar[bool] = True
    forces: ClassVar[bool] = True

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def begin(self, prompt: Sequence[int]) -> None:
        self.tokens = [*prompt]

    def push(self, token: int) -> None:
        self.tokens.append(token)

    def pop(self, token: int) -> None:
        self.tokens.pop()

    def process(self, row: Logits) -> None:
        raise AssertionError("a controller has no logits")

    def only(self) -> int | None:
        last = self.tokens[-1]
        return last + 1 if last >= 100 and last % 100 < 3 else None


def _under_a_grammar(mechanisms: Mechanisms, **options: Any) -> SpeculationController:
    chain = following([KeysOnly()], 3, limits=True)
    return _controller(mechanisms, lookups=Lookups(3, limits=chain), **options)


def _first_draft(controller: SpeculationController) -> tuple[InFlightDraft, int]:
    """The first draft in lockstep, for which a model drafts multiples of 100, and how many draft steps it took."""
    now, steps = 0.0, 0
    while (sent := controller.next_draft(now)) is None:
        assert controller.next_step(now) is not None
        steps += 1
        now += 0.002
        controller.drafted([Proposal(100 * steps, 0.99)], 1, now)
    return sent, steps


def test_what_a_grammar_determines_takes_no_draft_step_and_does_not_count() -> None:
    _, usual = _first_draft(_controller(LOCKSTEP))
    sent, steps = _first_draft(_under_a_grammar(LOCKSTEP))
    assert steps == usual
    assert sent.draft.ids == [100 * step + more for step in range(1, steps + 1) for more in range(4)]
    assert [token.source for token in sent.draft].count(DraftSource.GRAMMAR) == 3 * steps


def test_the_executor_does_not_continue_where_a_grammar_may_determine_the_next_token() -> None:
    for controller, onward in ((_controller(), True), (_under_a_grammar(WAITING), False)):
        step = controller.next_step(0.0)
        assert step is not None
        controller.next_step(0.0)
        assert (step.until > len(step.tails[0])) is onward


def test_the_time_of_a_pass_is_that_of_the_forced_tokens_that_it_read_too() -> None:
    latencies = _latencies()
    controller = _controller(LOCKSTEP, latencies, length=2)
    before = latencies.verify(0)
    _draft(controller, 0.0)
    _draft(controller, 0.0)
    sent = _sent(controller, 0.0)
    wide = latencies.verify(12)
    controller.answered(sent, 2, 0.0, wide, 0.1, forced=10)
    assert latencies.verify(0) == pytest.approx(before)
    controller.self_continued(latencies.verify(7), forced=7)
    assert latencies.verify(0) == pytest.approx(before)


def test_the_drafter_stands_back_while_the_verifier_is_faster_with_its_head() -> None:
    """A pass takes 50 ms, the link 20 ms, and a draft token 20 ms."""

    def schedule(tokens: int, seconds: float) -> Schedule:
        """After self-continuation steps of so many tokens, all but one of which the head predicted."""
        controller = _controller(ALL, _latencies(draft=0.02))
        for number in range(40):
            controller.self_continued(seconds, step=SelfContinued(tokens, tokens - 1))
            controller.committed(len(controller.known), [500 + number] * tokens, False, 0.1 + seconds * number)
            controller.reflect()
        return controller.schedule

    assert schedule(4, 0.06) is Schedule.SELF_CONTINUED
    assert schedule(1, 0.05) is Schedule.OVERLAPPED
    assert schedule(4, 0.4) is Schedule.OVERLAPPED, "its head is slow"
