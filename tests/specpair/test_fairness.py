"""Clients take turns, however much each of them wants."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair import fairness
from specpair.fairness import FairTurns, retry_after, share_of_one_client

Item = tuple[str, int]  # a client, and the how manyth of its items it is

STEPS = st.lists(st.one_of(st.none(), st.sampled_from("abcd")), max_size=60)  # a client has one more item; None: a turn


class Line:
    """Items that wait, with the turns of their clients."""

    def __init__(self) -> None:
        self.turns = FairTurns[Item](lambda item: item[0])
        self.waiting: list[Item] = []
        self._counts: Counter[str] = Counter()

    def come(self, client: str) -> None:
        self._counts[client] += 1
        item = client, self._counts[client]
        self.turns.arrived(item)
        self.waiting.append(item)


@given(STEPS)
def test_who_waits_sees_each_other_client_once_at_most(steps: list[str | None]) -> None:
    line = Line()
    passed: defaultdict[str, Counter[str]] = defaultdict(Counter)  # turns of others while a client waits for its own
    served: Counter[str] = Counter()
    for step in steps:
        if step is not None:
            line.come(step)
        elif line.waiting:
            client, number = line.turns.pop_next(line.waiting)
            served[client] += 1
            assert number == served[client], "a client's own items keep their order"
            passed.pop(client, None)
            for other in {name for name, _ in line.waiting} - {client}:
                passed[other][client] += 1
                assert passed[other][client] == 1, f"{client} had two turns while {other} waited"


@given(STEPS)
def test_the_order_is_that_in_which_the_items_are_taken(steps: list[str | None]) -> None:
    """If nothing else comes: an order of all is no other rule than a choice of one."""
    line = Line()
    for step in steps:
        if step is not None:
            line.come(step)
        elif line.waiting:
            line.turns.pop_next(line.waiting)
    order = line.turns.order(line.waiting)
    assert order == [line.turns.pop_next(line.waiting) for _ in order]
    assert not line.waiting


def test_a_client_that_was_idle_comes_before_those_that_were_served_since() -> None:
    line = Line()
    for client in "aab":
        line.come(client)
    taken = [line.turns.pop_next(line.waiting) for _ in range(3)]
    assert taken == [("a", 1), ("b", 1), ("a", 2)]
    for client in "acb":
        line.come(client)
    assert [line.turns.pop_next(line.waiting)[0] for _ in range(3)] == ["b", "a", "c"]


def test_clients_that_wait_and_are_forgotten_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "CLIENTS", 2)
    line = Line()
    for client in "ab":
        line.come(client)
    line.turns.pop_next(line.waiting)
    for client in "ca":
        line.come(client)
    assert [client for client, _ in line.turns.order(line.waiting)] == ["b", "a", "c"], "b is forgotten, a is not"
    assert [line.turns.pop_next(line.waiting)[0] for _ in "bac"] == ["b", "a", "c"]


def test_clients_that_do_not_wait_and_are_forgotten_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "CLIENTS", 2)
    line = Line()
    for client in "abc":
        line.come(client)
        line.turns.pop_next(line.waiting)
    for client in "ca":
        line.come(client)
    assert [client for client, _ in line.turns.order(line.waiting)] == ["c", "a"]


def test_one_client_leaves_a_quarter_to_others() -> None:
    assert [share_of_one_client(places) for places in (1, 3, 4, 8, 256, 1024)] == [1, 3, 3, 6, 192, 768]


def test_who_is_refused_asks_again_after_whole_seconds() -> None:
    assert [retry_after(seconds) for seconds in (0.0, 0.2, 1.0, 1.1, 59.5)] == [1, 1, 1, 2, 60]
