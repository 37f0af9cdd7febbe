"""A table of what drafters did next: it draws by situation, as survival analysis has it, and keeps the latest rows."""

import random
from collections import Counter

from lab.simulator.virtual.table import Next, Situation, Standing, Table
from specpair.speculation.policy.rejection_policy import UNSAID, RejectionPolicy

HERE, ELSEWHERE = Situation("sent", 1, 2, 0.0, False), Situation("missed", 0, 0, 0.004, True)


def _sent(delay: float) -> Next:
    return Next(delay, 3, UNSAID)


def _drawn(table: Table, situation: Situation, times: int = 4000) -> Counter[float | None]:
    rng = random.Random(0)
    drawn = (table.draw(situation, rng) for _ in range(times))
    return Counter(None if each is None else each.delay for each in drawn)


def test_nothing_is_drawn_from_an_empty_table() -> None:
    assert _drawn(Table(), HERE, 3) == {None: 3}


def test_each_situation_has_its_own_rows() -> None:
    table = Table()
    for _ in range(20):
        table.add(HERE, 0.01, _sent(0.01))
        table.add(ELSEWHERE, 0.02, _sent(0.02))
    assert set(_drawn(table, HERE)) == {0.01} and set(_drawn(table, ELSEWHERE)) == {0.02}


def test_a_situation_that_is_unknown_is_taken_with_those_that_are_most_like_it() -> None:
    table = Table()
    for _ in range(20):
        table.add(HERE, 0.01, _sent(0.01))
        table.add(HERE._replace(ahead=9), 0.03, _sent(0.03))
    assert set(_drawn(table, HERE._replace(ahead=5))) == {0.01, 0.03}
    assert set(_drawn(table, HERE._replace(self_continued=True, open=4))) == {0.01, 0.03}


def test_what_was_cut_short_is_drawn_from_what_lasted_longer() -> None:
    """Kaplan and Meier: of ten, five sent after 1 s, and five were cut short after 2 s, or sent after 3 s; nobody knows
    what those that were cut short would have done but from the others that lasted as long."""
    table = Table()
    for _ in range(10):
        table.add(HERE, 1.0, _sent(1.0))
    for _ in range(5):
        table.add(HERE, 2.0, None)
        table.add(HERE, 3.0, _sent(3.0))
    drawn = _drawn(table, HERE)
    assert set(drawn) == {1.0, 3.0} and abs(drawn[1.0] / drawn.total() - 0.5) < 0.03


def test_the_latest_rows_replace_the_oldest_and_no_situation_grows_without_bound() -> None:
    table = Table()
    for number in range(3000):
        table.add(HERE, 0.01, _sent(float(number)))
    drawn = _drawn(table, HERE)
    assert min(float(each or 0.0) for each in drawn) > 2000.0 and table.rows < 3000


def test_a_standing_follows_what_is_sent_and_learnt() -> None:
    standing = Standing(10, 0.0)
    assert standing.situation(0.5) == ("opened", 0, 0, 0.5, False)
    standing.sent([1, 2, 3], RejectionPolicy(self_continue=True), 1.0)
    standing.sent([1, 2, 3, 4, 5], UNSAID, 2.0)
    assert standing.situation(2.5) == ("sent", 2, 5, 2.5, True)
    standing.learnt([1, 2, 3, 4], 3.0)
    assert standing.situation(3.0) == ("confirmed", 1, 1, 1.0, True)
    standing.learnt([9], 4.0)
    assert standing.situation(4.0) == ("missed", 0, 0, 2.0, True)
    standing.sent([], RejectionPolicy(self_continue=False), 5.0)
    assert standing.situation(5.0) == ("sent", 1, 0, 1.0, False)
    standing.learnt([7], 6.0)
    assert standing.situation(6.0) == ("beyond", 0, 0, 1.0, False)
    assert standing.known == 16 and standing.path == []
