"""The controller decides what to draft and when to send it, from the events that it is given."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from specpair.speculation.draft import Draft, DraftSource
from specpair.speculation.drafts.acceptance_model import AcceptanceModel
from specpair.speculation.drafts.lookups import Lookups
from specpair.speculation.drafts.node_selection import DraftStep
from specpair.speculation.drafts.tree import Proposal
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


def _draft(
    controller: SpeculationController, now: float, confidence: float = 0.9, took: float = 0.002
) -> DraftStep | None:
    """Run a draft step, if one is due: each draft token is the last token plus 1, the runner-up plus 2."""
    step = controller.next_step(now)
    if step is not None:
        before = [[*controller.known[: step.length], *tail][-1] for tail in step.tails]
        proposals = [Proposal(last + 1, confidence, last + 2 if step.runners_up else None) for last in before]
        controller.drafted(proposals, len(step.nodes), now + took)
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


def test_overlap_drafts_while_a_response_is_awaited() -> None:
    controller, now = _controller(length=3), 0.0
    while (in_flight_draft := controller.next_draft(now)) is None:
        assert _draft(controller, now) is not None
        now += 0.002
    step = controller.next_step(now)
    assert step is not None and in_flight_draft.draft.ids == [14, 15, 16]
    assert [14, 15, 16] in step.tails, "behind the draft in flight"
    assert controller.next_step(now) is None, "one step at a time"


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


def test_draft_in_flight_is_not_sent_again() -> None:
    controller, now, ends = _controller(latencies=_latencies(link=0.3), length=4), 0.0, []
    while now < 0.25:
        if (in_flight_draft := controller.next_draft(now)) is not None:
            ends.append(in_flight_draft.end)
        _draft(controller, now)
        now += 0.002
    assert len(ends) > 2 and ends == sorted(set(ends))


@pytest.mark.parametrize("mechanisms", [LOCKSTEP, WAITING])
def test_nothing_is_drafted_or_sent_for_the_last_position(mechanisms: Mechanisms) -> None:
    controller, now, deepest = _controller(mechanisms, length=9, limit=8), 0.0, 0
    while (in_flight_draft := controller.next_draft(now)) is None:
        step = _draft(controller, now)
        assert step is not None
        deepest, now = max(deepest, *(len(tail) for tail in step.tails)), now + 0.002
    assert len(in_flight_draft.draft) == 3 and deepest == 2, "four positions are left, the last is the target's"
    assert _answer(controller, in_flight_draft, [*in_flight_draft.draft.ids, 5], now + 0.07)[-1] == 5


def test_draft_is_no_longer_than_the_verifier_judges() -> None:
    controller, now = _controller(LOCKSTEP, length=9, max_drafts=2), 0.0
    while (in_flight_draft := controller.next_draft(now)) is None:
        assert _draft(controller, now) is not None
        now += 0.002
    assert len(in_flight_draft.draft) == 2


def test_later_drafts_are_no_longer_than_the_verifier_judges_either() -> None:
    """After a broken connection the last of several may arrive first. Then all of it is fresh."""
    controller, now, drafts_in_flight = _controller(latencies=_latencies(link=0.3), length=4, max_drafts=4), 0.0, []
    while now < 0.25:
        if (in_flight_draft := controller.next_draft(now)) is not None:
            drafts_in_flight.append(in_flight_draft)
        _draft(controller, now)
        now += 0.002
    assert drafts_in_flight and max(len(in_flight_draft.draft) for in_flight_draft in drafts_in_flight) <= 4


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


def test_finished_text_needs_no_actions() -> None:
    controller = _controller(ALL, length=2)
    assert _draft(controller, 0.0) is not None
    assert controller.committed(4, [14, END], True, 0.005) == [14, END]
    assert controller.finished
    assert (
        controller.next_draft(0.005) is None
        and controller.next_step(0.005) is None
        and controller.wake_at(0.005) is None
    )


def test_nothing_is_drafted_behind_an_end_token() -> None:
    controller, now = _controller(LOCKSTEP, length=9), 0.0
    for token in (14, END):
        step = controller.next_step(now)
        assert step is not None
        controller.drafted([Proposal(token, 0.9)], 1, now + 0.002)
        now += 0.002
    assert controller.next_step(now) is None
    assert _sent(controller, now).draft.ids == [14, END]


def test_draft_step_on_a_rejected_path_has_no_effect() -> None:
    controller = _controller()
    assert _draft(controller, 0.0) is not None
    late = controller.next_step(0.002)
    assert late is not None and [14] in late.tails
    assert controller.committed(4, [77], False, 0.003) == [77]
    assert controller.drafted([Proposal(1, 0.9)] * len(late.nodes), len(late.nodes), 0.004) == 0.002
    step = controller.next_step(0.004)
    assert step is not None and (step.tails, step.length) == ([[]], 5)


def test_draft_step_that_reads_a_prompt_does_not_change_the_draft_time() -> None:
    latencies = _latencies(draft=0.002)
    controller = _controller(LOCKSTEP, latencies)
    assert controller.next_step(0.0) is not None
    assert controller.drafted([Proposal(14, 0.9)], 1000, 0.8) == 0.8
    assert latencies.draft() == 0.002
    assert controller.next_step(0.8) is not None
    controller.drafted([Proposal(15, 0.9)], 1, 0.806)
    assert latencies.draft() > 0.002


def test_drafts_are_compared_with_the_text_whether_or_not_they_were_sent() -> None:
    controller = _controller(ALL)
    for now in (0.0, 0.002, 0.004):
        controller.next_draft(now)
        assert _draft(controller, now) is not None
    before = controller.text.mispredicted
    assert controller.committed(4, [14, 15, 99], False, 0.006) == [14, 15, 99]  # by self-continuation
    assert (before, controller.text.mispredicted, controller.text.next_draft_ready) == (0, 1, 0)


def test_next_draft_is_ready_where_the_recovered_token_was_expanded() -> None:
    controller = _controller()
    now = 0.0
    while True:  # until a step has expanded a runner-up
        step = _draft(controller, now, confidence=0.5)
        assert step is not None and step.runners_up
        now += 0.002
        if [15] in step.tails:
            break
        controller.next_draft(now)
    controller.committed(4, [15], False, now)
    assert (controller.text.mispredicted, controller.text.next_draft_ready) == (1, 1)


@pytest.mark.parametrize("after_recovered", [False, True])
def test_runners_up_are_requested_only_with_the_mechanism(after_recovered: bool) -> None:
    controller = _controller(replace(WAITING, after_recovered=after_recovered))
    step = _draft(controller, 0.0)
    assert step is not None and step.runners_up == int(after_recovered)


def test_step_uses_the_whole_width_where_it_is_free() -> None:
    for width in (1, 3):
        latencies = _latencies(link=0.1)
        latencies.drafted(3, 0.002)  # further branches take no time
        controller, now, widest = _controller(latencies=latencies, width=width), 0.0, 0
        while now < 0.06:
            controller.next_draft(now)
            step = _draft(controller, now, confidence=0.5)
            widest, now = max(widest, len(step.nodes) if step else 0), now + 0.002
        assert widest == width


def test_unlikely_branches_are_not_expanded_where_width_is_expensive() -> None:
    latencies = _latencies(link=0.1)
    latencies.drafted(3, 0.006)  # a further branch takes as long as the first
    controller, now = _controller(latencies=latencies), 0.0
    while now < 0.06:
        controller.next_draft(now)
        step = _draft(controller, now, confidence=0.95)
        assert step is None or len(step.nodes) == 1
        now += 0.002


def test_executor_may_continue_along_the_path() -> None:
    """It may continue up to the length of the next draft, while the committed text agrees with the path."""
    controller = _controller(latencies=_latencies(link=0.1), length=4)
    step = controller.next_step(0.0)
    assert step is not None
    found, now = [14, 15, 16], 0.0
    for token in found:
        tail = step.tails[0]
        assert step.onward(tail, token) == [*tail, token]
        now += 0.002
        assert controller.drafted([Proposal(token, 0.9, token + 1)], 1, now, onward=True) == 0.002
        assert controller.next_step(now) is None, "the step is under way already"
        assert step.tails == [[*tail, token]]
    assert step.onward(step.tails[0], 17) is None, "four draft tokens are the fixed length"
    controller.drafted([Proposal(17, 0.9, 18)], 1, 0.008)
    assert _sent(controller, 0.008).draft.ids == [14, 15, 16, 17]


def test_executor_stops_continuing_after_a_rejection() -> None:
    controller = _controller(ALL, _latencies(step=0.1))
    step = controller.next_step(0.0)
    assert step is not None
    controller.drafted([Proposal(14, 0.99)], 1, 0.002, onward=True)
    controller.next_step(0.002)
    assert step.onward([14], 15) == [14, 15]
    controller.committed(4, [99], False, 0.003)
    assert controller.next_step(0.003) is None and step.onward([14], 15) is None
    controller.drafted([Proposal(15, 0.99)], 1, 0.004, onward=True)  # the executor had just continued
    assert controller.next_step(0.004) is None and step.onward([14, 15], 16) is None
    controller.drafted([Proposal(16, 0.99)], 1, 0.006)
    after = controller.next_step(0.006)
    assert after is not None and (after.tails, after.length) == ([[]], 5)


def test_tokens_drafted_behind_an_end_token_are_dropped() -> None:
    """The executor does not know the end tokens, and may have continued behind one."""
    controller = _controller(ALL, _latencies(step=0.1))
    assert controller.next_step(0.0) is not None
    controller.drafted([Proposal(14, 0.99)], 1, 0.002, onward=True)
    controller.drafted([Proposal(END, 0.99)], 1, 0.004, onward=True)
    assert controller.next_step(0.004) is None
    controller.drafted([Proposal(7, 0.99)], 1, 0.006, onward=True)
    assert controller.next_step(0.006) is None
    controller.drafted([Proposal(8, 0.99)], 1, 0.008)
    now, in_flight_draft = 0.008, None
    while in_flight_draft is None:
        in_flight_draft, step = controller.next_draft(now), controller.next_step(now)
        assert step is None or step.tails != [[14, END]]
        if step is not None:
            controller.drafted([Proposal(6, 0.9)] * len(step.nodes), len(step.nodes), now + 0.002)
        now += 0.002
    assert in_flight_draft.draft.ids == [14, END]


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


def test_report_is_sent_sooner_after_many_tokens() -> None:
    controller = _controller(ALL, length=0)
    controller.committed(4, [0] * 15, False, 0.006)
    assert controller.next_draft(0.006) is None
    controller.committed(19, [0], False, 0.007)
    assert _sent(controller, 0.007).draft.ids == []
    assert controller.next_draft(0.007) is None, "only once"


def test_draft_is_sent_just_in_time_for_the_verifier_to_become_free() -> None:
    controller, now = (
        _controller(replace(WAITING, after_recovered=False), _latencies(link=0.02, step=0.1), length=2),
        0.0,
    )
    while controller.next_draft(now) is None:
        assert _draft(controller, now) is not None
        now += 0.002
    first = now  # the pass starts 10 ms later and takes some 102 ms
    for _ in range(4):
        _draft(controller, now)
        now += 0.002
    assert controller.next_draft(now) is None, "it is too early"
    due = controller.wake_at(now)
    assert due is not None and first + 0.085 < due < first + 0.103
    assert len(_sent(controller, due).draft) == 5


def test_the_first_draft_goes_beyond_what_the_verifier_writes_until_it_arrives() -> None:
    link, step = 0.1, 0.01  # the verifier writes ten tokens by itself until it expects the first draft
    controller = _controller(ALL, _latencies(link, 0.001, step), next_in=link)
    now = 0.0
    while (in_flight_draft := controller.next_draft(now)) is None:
        assert _draft(controller, now, confidence=0.999, took=0.001) is not None, "it drafts from the beginning"
        now += 0.001
    assert len(in_flight_draft.draft) > 10 and now < link


def test_draft_does_not_wait_for_a_token_that_would_make_it_late() -> None:
    """The draft step ends half a millisecond after the request should leave, yet within the margin."""
    latencies = _latencies(link=0.03, draft=0.0025, step=0.04)
    controller = _controller(replace(ALL, after_recovered=False), latencies, next_in=1000.0)
    for now in (0.0, 0.0025):
        assert controller.next_draft(now) is None
        assert _draft(controller, now, took=0.0025) is not None
    due = controller.wake_at(0.005)
    assert due is not None and latencies.margin > 0.0005
    assert controller.next_draft(due - 0.002) is None and controller.next_step(due - 0.002) is not None
    assert _sent(controller, due).draft.ids == [14, 15]


@pytest.mark.parametrize("step", [0.05, 0.0497, 0.0531], ids=lambda step: f"{step} s a pass")
@pytest.mark.parametrize("mechanisms", [WAITING, ALL], ids=["waiting", "self-continuing"])
def test_useless_drafter_is_tried_again_from_time_to_time(mechanisms: Mechanisms, step: float) -> None:
    controller, now, steps = _controller(mechanisms, _latencies(link=0.03, step=0.02)), 0.0, []
    for _ in range(400):
        in_flight_draft = controller.next_draft(now)
        if _draft(controller, now) is not None:  # its tokens are always rejected
            steps.append(len(controller.known))
        now += 0.02
        if in_flight_draft is not None:
            _answer(controller, in_flight_draft, [0], now, step=step)
        elif mechanisms.self_continue:
            controller.committed(len(controller.known), [0], False, now)
            controller.reflect()
    tried = [known for known in steps if known > 200]
    assert 10 < len(tried) < 60, "about one token in eight"
    assert controller.text.mispredicted > 20


def test_perfect_drafter_makes_drafts_as_long_as_they_pay() -> None:
    controller, now, longest = _controller(latencies=_latencies(link=0.02, draft=0.002, step=0.05)), 0.0, 0
    drafts_in_flight: list[tuple[float, InFlightDraft]] = []
    while now < 1.0:
        while (in_flight_draft := controller.next_draft(now)) is not None:
            drafts_in_flight.append((now + 0.07, in_flight_draft))
            longest = max(longest, len(in_flight_draft.draft))
        _draft(controller, now)
        now += 0.002
        while drafts_in_flight and drafts_in_flight[0][0] <= now:
            _, in_flight_draft = drafts_in_flight.pop(0)
            draft = in_flight_draft.draft
            _answer(controller, in_flight_draft, [*draft.ids, draft.position + len(draft) + 10], now)
    assert controller.known == list(range(10, 10 + len(controller.known))), "all its tokens were accepted"
    assert longest > 10 and controller.schedule is Schedule.OVERLAPPED
    assert controller.text.mispredicted == 0


def test_report_does_not_stop_self_continuation() -> None:
    """Nothing has been drafted yet, as while a model reads a long prompt, so there is no draft to wait for."""
    controller = _controller(ALL)
    assert controller.next_step(0.0) is not None
    assert controller.committed(4, list(range(14, 40)), False, 0.4)
    in_flight_draft = controller.next_draft(0.4)
    assert in_flight_draft is not None and in_flight_draft.draft.ids == [] and in_flight_draft.policy.self_continue


def test_verifier_that_waits_for_a_slow_draft_step_is_told_to_self_continue() -> None:
    controller = _controller(ALL)
    assert _draft(controller, 0.0) is not None
    in_flight_draft = None
    now = 0.002
    while in_flight_draft is None:
        in_flight_draft = controller.next_draft(now)
        if in_flight_draft is None:
            assert _draft(controller, now) is not None
            now += 0.002
    in_flight_draft.policy = RejectionPolicy(False, in_flight_draft.policy.next_in)
    _answer(controller, in_flight_draft, [77], now + 0.07)
    now += 0.07
    assert controller.next_draft(now) is None and controller.next_step(now) is not None
    wake = controller.wake_at(now)
    assert wake is not None and now + 0.05 <= wake < now + 0.06
    assert controller.next_draft(wake - 0.01) is None
    report = controller.next_draft(wake)
    assert report is not None and report.draft.ids == [] and report.policy.self_continue


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


@pytest.mark.parametrize(("confidence", "drafts"), [(0.9, True), (0.1, False)])
def test_behind_many_forced_tokens_something_is_drafted_only_where_the_text_likely_comes_there(
    confidence: float, drafts: bool
) -> None:
    """Reading them takes the draft model as long as a pass takes the verifier."""
    latencies = _latencies()
    latencies.read(3, 1, 0.002 + latencies.verify(0))
    controller = _under_a_grammar(ALL, latencies=latencies)
    step = controller.next_step(0.0)
    assert step is not None
    controller.drafted([Proposal(100, confidence)], 1, 0.002)
    sent = controller.next_draft(0.002)
    step = controller.next_step(0.002)
    assert (step is not None) is drafts, sent
    assert step is None or step.tails == [[100, 101, 102, 103]]
