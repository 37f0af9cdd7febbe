"""The reactor's timer: no moment is missed, however long its threads wait for a core."""

from itertools import count
from typing import Any

from specpair.drafters.run.reactor import JudgedRounds, PlainTranscript, Reactor
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.acceptance.token_sources import split
from specpair.speculation.draft import Draft
from specpair.speculation.policy.verifier_timeline import InFlightDraft


class Waiting:
    """A controller with nothing to do before `moment` (s)."""

    forced, moment = 0, 0.5

    def reflect(self) -> bool:
        return False

    def next_draft(self, now: float) -> None:
        return None

    next_step = next_draft

    def wake_at(self, now: float) -> float | None:
        return self.moment if self.moment > now else None


def test_a_moment_that_passes_while_the_reactor_decides_is_not_missed() -> None:
    seconds = count()  # that pass from one reading of the clock to the next
    given: Any = Waiting()
    no_executor: Any = None
    reactor = Reactor(PlainTranscript([0], None), given, lambda *_: None, lambda: float(next(seconds)))
    assert reactor.run_due(no_executor, acted=False) == Waiting.moment
    assert reactor.run_due(no_executor, acted=True) == Waiting.moment
    assert reactor.run_due(no_executor, acted=False) is None


TEXT = [*range(10, 20), 1, 2, 3, 4, 5, 6]


def sent(at: float, position: int, *ids: int) -> InFlightDraft:
    return InFlightDraft(Draft.chain(position, ids), at)


def test_an_answer_that_overtook_another_leaves_it_its_round() -> None:
    rounds = JudgedRounds()
    first, second, third = sent(1.0, 10, 1), sent(2.0, 10, 1, 2, 3), sent(3.0, 11, 2, 3, 4, 5)
    assert list(rounds.of(split("abab"), 10, TEXT[:14], [second, first, third])) == [
        JudgedRound(1, 1, first.draft.tokens, first),
        JudgedRound(1, 1, second.draft.tokens[2:], second),
    ]
    assert list(rounds.of(split("ab"), 14, TEXT, [third, first])) == [JudgedRound(1, 1, third.draft.tokens[3:], third)]


def test_a_draft_judged_in_part_is_found() -> None:
    draft = sent(1.0, 10, 1, 2, 9, 9)
    assert list(JudgedRounds().of(split("ar"), 10, TEXT[:12], [draft])) == [
        JudgedRound(2, 1, draft.draft.tokens[:2], draft)
    ]


def test_a_round_of_no_known_draft_is_told_without() -> None:
    assert list(JudgedRounds().of(split("ab"), 10, TEXT[:12], [sent(1.0, 10, 7)])) == [JudgedRound(1, 1)]
