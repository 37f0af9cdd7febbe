"""What to draft and what to send, moment by moment, told what happens and asked what to do next."""

from dataclasses import replace
from typing import Any

import pytest

from speculation.drafts.node_selection import DraftStep
from speculation.drafts.tree import Prediction
from speculation.policy.controller import SpeculationController
from speculation.policy.schedule import LOCKSTEP, Mechanisms, Schedule
from speculation.policy.timing import LatencyModel
from speculation.policy.verifier_timeline import InFlightDraft

ALL = Mechanisms()
WAITING = replace(ALL, self_continue=False)
END = 999


def _times(link: float = 20.0, draft: float = 2.0, step: float = 50.0) -> LatencyModel:
    times = LatencyModel([step, step + 1.0, step + 2.0])
    times.exchanged(link, 0.0, 0.0)
    times.drafted(1, draft)
    return times


def _controller(
    mechanisms: Mechanisms = WAITING, times: LatencyModel | None = None, **options: Any
) -> SpeculationController:
    """Behind a prompt of three tokens and the first generated one. The drafter counts on from the last token."""
    return SpeculationController(
        [10, 11, 12, 13],
        options.pop("limit", 1000),
        frozenset({END}),
        times or _times(),
        **{"max_drafts": 64, "width": 6, "mechanisms": mechanisms, **options},
    )


def _draft(
    controller: SpeculationController, now: float, confidence: float = 0.9, took: float = 2.0
) -> DraftStep | None:
    """A draft step, if one is wanted: each draft is one more than what it follows, the second choice is two more."""
    step = controller.next_step(now)
    if step is not None:
        before = [[*controller.known[: step.length], *tail][-1] for tail in step.tails]
        predictions = [Prediction(last + 1, confidence, last + 2 if step.runners_up else None) for last in before]
        controller.drafted(predictions, len(step.nodes), now + took)
    return step


def _answer(
    controller: SpeculationController,
    in_flight_draft: InFlightDraft,
    tokens: list[int],
    now: float,
    judged: int | None = None,
) -> list[int]:
    controller.answered(in_flight_draft, len(in_flight_draft.drafts) if judged is None else judged, 0.0, 50.0, now)
    new = controller.committed(in_flight_draft.position, tokens, False, now)
    controller.reflect()
    return new


def _sent(controller: SpeculationController, now: float) -> InFlightDraft:
    in_flight_draft = controller.next_guess(now)
    assert in_flight_draft is not None
    return in_flight_draft


@pytest.mark.parametrize("length", [0, 1, 5])
def test_in_lockstep_it_drafts_then_sends_then_waits(length: int) -> None:
    controller, now = _controller(LOCKSTEP, length=length), 0.0
    for _ in range(length):
        assert controller.next_guess(now) is None
        assert _draft(controller, now) is not None
        now += 2.0
    in_flight_draft = _sent(controller, now)
    assert in_flight_draft.drafts == list(range(14, 14 + length)) and in_flight_draft.position == 4
    assert controller.next_guess(now) is None and controller.next_step(now) is None
    assert controller.schedule is Schedule.LOCKSTEP
    assert _answer(controller, in_flight_draft, [*in_flight_draft.drafts, 77], now + 70.0) == [
        *in_flight_draft.drafts,
        77,
    ]
    assert controller.known == [10, 11, 12, 13, *in_flight_draft.drafts, 77]


def test_with_overlap_it_drafts_on_while_an_answer_is_under_way() -> None:
    controller, now = _controller(length=3), 0.0
    while (in_flight_draft := controller.next_guess(now)) is None:
        assert _draft(controller, now) is not None
        now += 2.0
    step = controller.next_step(now)
    assert step is not None and in_flight_draft.drafts == [14, 15, 16]
    assert [14, 15, 16] in step.tails, "behind what is under way"
    assert controller.next_step(now) is None, "one step at a time"


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_there_are_never_more_guesses_under_way_than_it_may(in_flight: int) -> None:
    controller, now, in_flight_drafts = (
        _controller(replace(WAITING, in_flight=in_flight), _times(link=300.0), length=2),
        0.0,
        [],
    )
    while now < 200.0:
        if (in_flight_draft := controller.next_guess(now)) is not None:
            in_flight_drafts.append(in_flight_draft)
        _draft(controller, now)
        now += 2.0
    assert len(in_flight_drafts) == in_flight
    assert [len(in_flight_draft.drafts) for in_flight_draft in in_flight_drafts] == [
        2 + 3 * number for number in range(in_flight)
    ], "each carries the whole way from the known text, and two beyond the last one's free token"


def test_a_guess_that_is_on_its_way_is_not_sent_again() -> None:
    controller, now, ends = _controller(times=_times(link=300.0), length=4), 0.0, []
    while now < 250.0:
        if (in_flight_draft := controller.next_guess(now)) is not None:
            ends.append(in_flight_draft.end)
        _draft(controller, now)
        now += 2.0
    assert len(ends) > 2 and ends == sorted(set(ends))


@pytest.mark.parametrize("mechanisms", [LOCKSTEP, WAITING])
def test_nothing_is_drafted_or_sent_for_the_last_place(mechanisms: Mechanisms) -> None:
    controller, now, deepest = _controller(mechanisms, length=9, limit=8), 0.0, 0
    while (in_flight_draft := controller.next_guess(now)) is None:
        step = _draft(controller, now)
        assert step is not None
        deepest, now = max(deepest, *(len(tail) for tail in step.tails)), now + 2.0
    assert len(in_flight_draft.drafts) == 3 and deepest == 2, "four places are left, the last is the target's"
    assert _answer(controller, in_flight_draft, [*in_flight_draft.drafts, 5], now + 70.0)[-1] == 5


def test_no_guess_holds_more_fresh_drafts_than_the_verifier_judges() -> None:
    controller, now = _controller(LOCKSTEP, length=9, max_drafts=2), 0.0
    while (in_flight_draft := controller.next_guess(now)) is None:
        assert _draft(controller, now) is not None
        now += 2.0
    assert len(in_flight_draft.drafts) == 2


def test_no_guess_is_longer_than_the_verifier_judges_though_others_precede_it() -> None:
    """Behind a connection that broke the last of several may arrive first; all of it is fresh then."""
    controller, now, in_flight_drafts = _controller(times=_times(link=300.0), length=4, max_drafts=4), 0.0, []
    while now < 250.0:
        if (in_flight_draft := controller.next_guess(now)) is not None:
            in_flight_drafts.append(in_flight_draft)
        _draft(controller, now)
        now += 2.0
    assert in_flight_drafts and max(len(in_flight_draft.drafts) for in_flight_draft in in_flight_drafts) <= 4


def test_an_answer_tells_only_what_is_new() -> None:
    controller = _controller()
    assert controller.committed(4, [14, 15], False, 1.0) == [14, 15]
    assert controller.committed(4, [14, 15, 16], False, 2.0) == [16]
    assert controller.committed(3, [13, 14], False, 3.0) == []
    assert controller.known == [10, 11, 12, 13, 14, 15, 16]


def test_news_from_beyond_a_gap_wait_for_what_lies_between() -> None:
    controller = _controller()
    assert controller.committed(6, [16], False, 1.0) == []
    assert controller.committed(4, [14, 15, 16, 17], False, 2.0) == [14, 15, 16, 17]


def test_at_the_end_of_the_text_there_is_nothing_left_to_do() -> None:
    controller = _controller(ALL, length=2)
    assert _draft(controller, 0.0) is not None
    assert controller.committed(4, [14, END], True, 5.0) == [14, END]
    assert controller.finished
    assert controller.next_guess(5.0) is None and controller.next_step(5.0) is None and controller.wake_at(5.0) is None


def test_nothing_is_drafted_behind_an_end_of_the_text() -> None:
    controller, now = _controller(LOCKSTEP, length=9), 0.0
    for token in (14, END):
        step = controller.next_step(now)
        assert step is not None
        controller.drafted([Prediction(token, 0.9)], 1, now + 2.0)
        now += 2.0
    assert controller.next_step(now) is None
    assert _sent(controller, now).drafts == [14, END]


def test_a_step_that_ends_when_the_text_has_gone_elsewhere_is_of_no_use_and_no_harm() -> None:
    controller = _controller()
    assert _draft(controller, 0.0) is not None
    late = controller.next_step(2.0)
    assert late is not None and [14] in late.tails
    assert controller.committed(4, [77], False, 3.0) == [77]
    assert controller.drafted([Prediction(1, 0.9)] * len(late.nodes), len(late.nodes), 4.0) == 2.0
    step = controller.next_step(4.0)
    assert step is not None and (step.tails, step.length) == ([[]], 5)


def test_a_step_that_had_to_read_up_tells_nothing_of_what_a_draft_takes() -> None:
    times = _times(draft=2.0)
    controller = _controller(LOCKSTEP, times)
    assert controller.next_step(0.0) is not None
    assert controller.drafted([Prediction(14, 0.9)], 1000, 800.0) == 800.0
    assert times.draft() == 2.0
    assert controller.next_step(800.0) is not None
    controller.drafted([Prediction(15, 0.9)], 1, 806.0)
    assert times.draft() > 2.0


def test_what_was_drafted_is_compared_with_the_text_whether_or_not_it_was_sent() -> None:
    controller = _controller(ALL)
    for now in (0.0, 2.0, 4.0):
        controller.next_guess(now)
        assert _draft(controller, now) is not None
    before = controller.text.mispredicted
    assert controller.committed(4, [14, 15, 99], False, 6.0) == [14, 15, 99]  # the verifier's own steps
    assert (before, controller.text.mispredicted, controller.text.next_draft_ready) == (0, 1, 0)


def test_a_miss_is_prepared_where_something_was_drafted_behind_what_came_instead() -> None:
    controller = _controller()
    now = 0.0
    while True:  # until a step has looked behind a second choice
        step = _draft(controller, now, confidence=0.5)
        assert step is not None and step.runners_up
        now += 2.0
        if [15] in step.tails:
            break
        controller.next_guess(now)
    controller.committed(4, [15], False, now)
    assert (controller.text.mispredicted, controller.text.next_draft_ready) == (1, 1)


@pytest.mark.parametrize("corrections", [False, True])
def test_second_choices_are_looked_for_only_where_corrections_are_prepared(corrections: bool) -> None:
    controller = _controller(replace(WAITING, corrections=corrections))
    step = _draft(controller, 0.0)
    assert step is not None and step.runners_up is corrections


def test_a_step_is_no_wider_than_the_drafter_and_free_width_is_used() -> None:
    for width in (1, 3):
        times = _times(link=100.0)
        times.drafted(3, 2.0)  # further rows take nothing
        controller, now, widest = _controller(times=times, width=width), 0.0, 0
        while now < 60.0:
            controller.next_guess(now)
            step = _draft(controller, now, confidence=0.5)
            widest, now = max(widest, len(step.nodes) if step else 0), now + 2.0
        assert widest == width


def test_where_rows_are_dear_unlikely_corrections_are_not_prepared() -> None:
    times = _times(link=100.0)
    times.drafted(3, 6.0)  # a further row takes as long as the first
    controller, now = _controller(times=times), 0.0
    while now < 60.0:
        controller.next_guess(now)
        step = _draft(controller, now, confidence=0.95)
        assert step is None or len(step.nodes) == 1
        now += 2.0


def test_along_the_path_the_drafter_may_go_on_without_asking() -> None:
    """As far as the next guess goes, and as long as the text says nothing else."""
    controller = _controller(times=_times(link=100.0), length=4)
    step = controller.next_step(0.0)
    assert step is not None
    found, now = [14, 15, 16], 0.0
    for token in found:
        tail = step.tails[0]
        assert step.onward(tail, token) == [*tail, token]
        now += 2.0
        assert controller.drafted([Prediction(token, 0.9, token + 1)], 1, now, onward=True) == 2.0
        assert controller.next_step(now) is None, "it is under way already"
        assert step.tails == [[*tail, token]]
    assert step.onward(step.tails[0], 17) is None, "four drafts are as many as were wanted"
    controller.drafted([Prediction(17, 0.9, 18)], 1, 8.0)
    assert _sent(controller, 8.0).drafts == [14, 15, 16, 17]


def test_a_drafter_that_goes_on_stops_where_the_text_says_something_else() -> None:
    controller = _controller(ALL, _times(step=100.0))
    step = controller.next_step(0.0)
    assert step is not None
    controller.drafted([Prediction(14, 0.99)], 1, 2.0, onward=True)
    controller.next_step(2.0)
    assert step.onward([14], 15) == [14, 15]
    controller.committed(4, [99], False, 3.0)
    assert controller.next_step(3.0) is None and step.onward([14], 15) is None
    controller.drafted([Prediction(15, 0.99)], 1, 4.0, onward=True)  # it had just gone on
    assert controller.next_step(4.0) is None and step.onward([14, 15], 16) is None
    controller.drafted([Prediction(16, 0.99)], 1, 6.0)
    after = controller.next_step(6.0)
    assert after is not None and (after.tails, after.length) == ([[]], 5)


def test_nothing_comes_of_drafts_behind_the_end() -> None:
    """Whoever drafts does not know which tokens end a text, and may have gone on."""
    controller = _controller(ALL, _times(step=100.0))
    assert controller.next_step(0.0) is not None
    controller.drafted([Prediction(14, 0.99)], 1, 2.0, onward=True)
    controller.drafted([Prediction(END, 0.99)], 1, 4.0, onward=True)
    assert controller.next_step(4.0) is None
    controller.drafted([Prediction(7, 0.99)], 1, 6.0, onward=True)
    assert controller.next_step(6.0) is None
    controller.drafted([Prediction(8, 0.99)], 1, 8.0)
    now, in_flight_draft = 8.0, None
    while in_flight_draft is None:
        in_flight_draft, step = controller.next_guess(now), controller.next_step(now)
        assert step is None or step.tails != [[14, END]]
        if step is not None:
            controller.drafted([Prediction(6, 0.9)] * len(step.nodes), len(step.nodes), now + 2.0)
        now += 2.0
    assert in_flight_draft.drafts == [14, END]


def test_a_verifier_that_waits_in_vain_is_told_to_go_on() -> None:
    """It holds its step for a guess that was to come soon; by what came since, none is worth waiting for."""
    controller, now = _controller(ALL, _times(link=2.0, draft=4.0, step=50.0)), 0.0
    for _ in range(12):
        controller.committed(len(controller.known), [0], False, now)
        _draft(controller, now)  # never what comes
        controller.reflect()
        now += 50.0
    in_flight_draft = InFlightDraft(len(controller.known), [1, 2], now, 5.0)
    controller._timeline.sent(in_flight_draft)
    _answer(controller, in_flight_draft, [0], now + 52.0)
    said = _sent(controller, now + 52.0)
    assert said.drafts == [] and said.position == len(controller.known)


def test_a_verifier_that_goes_on_is_told_from_time_to_time_how_far_we_are() -> None:
    """No guess comes: the first it need not wait for, and after that it is told only that we are here."""
    controller, now, spoke = _controller(ALL, length=0), 0.0, []
    while now < 2000.0:
        if now and not now % 100:
            controller.committed(len(controller.known), [0], False, now)
            controller.reflect()
        in_flight_draft = controller.next_guess(now)
        if in_flight_draft is not None:
            assert in_flight_draft.drafts == [] and in_flight_draft.position == len(controller.known)
            spoke.append(now)
            controller.answered(in_flight_draft, 0, 0.0, 0.0, now + 20.0)
            controller.committed(in_flight_draft.position, [], False, now + 20.0)
        now += 10.0
    assert spoke == [0.0, 500.0, 1000.0, 1500.0]
    wake = controller.wake_at(1600.0)
    assert wake is not None and 1600.0 < wake <= 2000.0
    assert controller.schedule is Schedule.SELF_CONTINUED


def test_it_is_told_sooner_where_much_has_come() -> None:
    controller = _controller(ALL, length=0)
    controller.committed(4, [0] * 15, False, 5.0)
    assert controller.next_guess(5.0) is None
    controller.committed(19, [0], False, 6.0)
    assert _sent(controller, 6.0).drafts == []
    assert controller.next_guess(6.0) is None, "once"


def test_a_guess_leaves_just_in_time_for_the_verifier_to_become_free() -> None:
    controller, now = _controller(replace(WAITING, corrections=False), _times(link=20.0, step=100.0), length=2), 0.0
    while controller.next_guess(now) is None:
        assert _draft(controller, now) is not None
        now += 2.0
    first = now  # it is judged from 10 ms on, for some 102
    for _ in range(4):
        _draft(controller, now)
        now += 2.0
    assert controller.next_guess(now) is None, "there is time"
    due = controller.wake_at(now)
    assert due is not None and first + 85.0 < due < first + 103.0
    assert len(_sent(controller, due).drafts) == 5


def test_a_guess_that_must_be_there_before_a_step_of_the_verifiers_own_does_not_wait_for_a_late_draft() -> None:
    """The step under way ends half a millisecond after the guess should leave, but before it would be too late."""
    times = _times(link=30.0, draft=2.5, step=40.0)
    controller = _controller(replace(ALL, corrections=False), times, next_in_ms=1e6)
    for now in (0.0, 2.5):
        assert controller.next_guess(now) is None
        assert _draft(controller, now, took=2.5) is not None
    due = controller.wake_at(5.0)
    assert due is not None and times.margin > 0.5
    assert controller.next_guess(due - 2.0) is None and controller.next_step(due - 2.0) is not None
    assert _sent(controller, due).drafts == [14, 15]


@pytest.mark.parametrize("mechanisms", [WAITING, ALL], ids=["waited for", "going on by itself"])
def test_a_drafter_that_never_agrees_is_tried_again_from_time_to_time(mechanisms: Mechanisms) -> None:
    controller, now, steps = _controller(mechanisms, _times(link=30.0, step=20.0)), 0.0, []
    for _ in range(400):
        in_flight_draft = controller.next_guess(now)
        step = _draft(controller, now)  # its drafts are above all that comes
        if step is not None:
            steps.append(len(controller.known))
        now += 20.0
        if in_flight_draft is not None:
            _answer(controller, in_flight_draft, [0], now)
        elif mechanisms.self_continue:
            controller.committed(len(controller.known), [0], False, now)
            controller.reflect()
    tried = [known for known in steps if known > 200]
    assert 10 < len(tried) < 60, "about one token in eight"
    assert controller.text.mispredicted > 20


def test_a_drafter_that_always_agrees_makes_guesses_as_long_as_they_pay() -> None:
    controller, now, longest = _controller(times=_times(link=20.0, draft=2.0, step=50.0)), 0.0, 0
    in_flight_drafts: list[tuple[float, InFlightDraft]] = []
    while now < 1000.0:
        while (in_flight_draft := controller.next_guess(now)) is not None:
            in_flight_drafts.append((now + 70.0, in_flight_draft))
            longest = max(longest, len(in_flight_draft.drafts))
        _draft(controller, now)
        now += 2.0
        while in_flight_drafts and in_flight_drafts[0][0] <= now:
            _, in_flight_draft = in_flight_drafts.pop(0)
            _answer(controller, in_flight_draft, [*in_flight_draft.drafts, in_flight_draft.end + 10], now)
    assert controller.known == list(range(10, 10 + len(controller.known))), "all that it counted up stood"
    assert longest > 10 and controller.schedule is Schedule.OVERLAPPED
    assert controller.text.mispredicted == 0


def test_a_word_that_we_follow_does_not_stop_a_verifier_that_goes_on_by_itself() -> None:
    """Nothing has been drafted yet, as while a model reads a long prompt: there is nothing to wait for."""
    controller = _controller(ALL)
    assert controller.next_step(0.0) is not None
    assert controller.committed(4, list(range(14, 40)), False, 400.0)
    in_flight_draft = controller.next_guess(400.0)
    assert in_flight_draft is not None and in_flight_draft.drafts == [] and in_flight_draft.goes_on


def test_a_verifier_that_waits_for_a_model_which_takes_long_is_told_to_go_on() -> None:
    controller = _controller(ALL)
    assert _draft(controller, 0.0) is not None
    in_flight_draft = None
    now = 2.0
    while in_flight_draft is None:
        in_flight_draft = controller.next_guess(now)
        if in_flight_draft is None:
            assert _draft(controller, now) is not None
            now += 2.0
    in_flight_draft.goes_on = controller._timeline.goes_on = False
    controller._step = None
    _answer(controller, in_flight_draft, [77], now + 70.0)
    now += 70.0
    assert controller.next_guess(now) is None and controller.next_step(now) is not None
    wake = controller.wake_at(now)
    assert wake is not None and now + 50.0 <= wake < now + 60.0
    assert controller.next_guess(wake - 10.0) is None
    told = controller.next_guess(wake)
    assert told is not None and told.drafts == [] and told.goes_on
