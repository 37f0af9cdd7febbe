"""The table of sessions: who is found, who is forgotten and when."""

import pytest

from speculation.acceptance import Strategy
from speculation.errors import Overloaded, SessionConflict, UnknownSession
from speculation.sampling import Sampling
from verifier_server.sessions import Session, SessionTable


class Table:
    """A table with a clock that the test turns."""

    def __init__(self, ttl: float = 10.0, capacity: int = 3) -> None:
        self.now = 0.0
        self.removed: list[str] = []
        self.sessions = SessionTable(lambda: self.now, ttl, capacity, lambda session: self.removed.append(session.id))

    def open(self, name: str | None, request: object = "request", caller: str = "me", prompt: int = 1) -> Session:
        return self.sessions.open(name, caller, request, lambda new_id: session(new_id, prompt))


def session(name: str, prompt: int = 1) -> Session:
    return Session(name, [prompt, 2], 2, Sampling(), Strategy.COUPLED, 10)


def test_a_session_is_found_by_its_id() -> None:
    table = Table()
    opened = table.open("a")
    assert table.sessions.get("a") is opened
    assert table.open("a") is opened
    assert (opened.cursor, opened.request) == (2, "request")
    with pytest.raises(UnknownSession, match="no session b: it was never prefilled, was deleted, or expired when idle"):
        table.sessions.get("b")


def test_ids_of_our_own_cannot_be_guessed() -> None:
    table = Table(capacity=50)
    names = {table.open(None).id for _ in range(50)}
    assert len(names) == 50
    assert all(len(name) == 32 for name in names)


def test_another_request_under_an_id_in_use_is_a_conflict() -> None:
    table = Table()
    table.open("a", {"prompt": 1})
    assert table.open("a", {"prompt": 1}).id == "a"
    with pytest.raises(SessionConflict, match="session a was opened with another prefill"):
        table.open("a", {"prompt": 2}, prompt=2)
    assert table.open("a", {"prompt": [1]}).id == "a", "the same text in other words"


def test_idle_sessions_are_forgotten() -> None:
    table = Table(ttl=10)
    table.open("old")
    table.now = 6
    table.open("used")
    table.now = 10
    assert table.sessions.get("old").id == "old"  # exactly the time to live is still alive; this use renews it
    table.now = 16.5
    assert [each.id for each in table.sessions.all()] == ["old"]
    assert table.removed == ["used"]
    table.now = 21
    with pytest.raises(UnknownSession):
        table.sessions.get("old")
    assert table.removed == ["used", "old"]


def test_a_request_under_way_keeps_its_session_however_long_it_takes() -> None:
    table = Table(ttl=10)
    opened = table.open("a")
    with table.sessions.in_use(opened), table.sessions.in_use(opened):
        table.now = 1000
        assert table.sessions.all() == [opened]
    table.now = 1009
    assert table.sessions.all() == [opened], "it is idle since its answer"
    table.now = 1011
    assert table.sessions.all() == []


def test_the_latest_session_is_the_caller_s_own() -> None:
    table = Table()
    table.open("a", caller="me")
    table.open("b", caller="you")
    assert (table.sessions.latest("me").id, table.sessions.latest("you").id) == ("a", "b")
    table.open("c", caller="me")
    assert table.sessions.latest("me").id == "c"
    table.open("a", caller="me")
    assert table.sessions.latest("me").id == "a", "a repeated prefill counts"
    table.sessions.remove("a")
    with pytest.raises(UnknownSession, match="you have no latest session"):
        table.sessions.latest("me")
    assert table.sessions.latest("you").id == "b"


def test_capacity_frees_up_by_deleting_and_by_idling() -> None:
    table = Table(ttl=10, capacity=2)
    table.open("a")
    table.now = 5
    table.open("b")
    with pytest.raises(Overloaded, match="all 2 sessions are taken"):
        table.open("c")
    assert table.open("a").id == "a"  # one that is there already
    table.sessions.remove("a")
    table.open("c")
    table.now = 15.5
    table.open("d")
    table.open("e")
    assert [each.id for each in table.sessions.all()] == ["d", "e"]


def test_a_session_that_could_not_be_made_leaves_nothing_behind() -> None:
    table = Table()

    def fail(_name: str) -> Session:
        raise ValueError("no prompt")

    with pytest.raises(ValueError, match="no prompt"):
        table.sessions.open("a", "me", "request", fail)
    assert len(table.sessions) == 0
    with pytest.raises(UnknownSession):
        table.sessions.latest("me")


@pytest.mark.parametrize(
    ("tokens", "committed", "reason"),
    [([3], [3], None), ([3, 9], [3, 9], "stop"), ([3] * 8, [3] * 8, "length"), ([3] * 12, [3] * 8, "length")],
)
def test_committing(tokens: list[int], committed: list[int], reason: str | None) -> None:
    made = session("a")
    made.commit(tokens, {9})
    assert (made.tokens[2:], made.finish_reason) == (committed, reason)
