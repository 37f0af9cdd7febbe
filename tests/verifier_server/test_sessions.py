"""The table of sessions: conflicts, the latest session of a caller, expiry, replacement."""

import pytest

from specpair.http_service.keys.access import ANYONE, Caller
from specpair.protocol.errors import SessionConflict, UnknownSession
from specpair.speculation.acceptance.token_sources import TokenDetails, joined, split
from specpair.speculation.text_options import TextSpec
from verifier_server.session_table import CALLERS, SessionTable
from verifier_server.sessions import Session


class Table:
    """A table with a clock that the test sets."""

    def __init__(self, ttl: float = 10.0, capacity: int = 3) -> None:
        self.now = 0.0
        self.removed: list[str] = []
        self.sessions = SessionTable(lambda: self.now, ttl, capacity, lambda session: self.removed.append(session.id))

    def open(
        self,
        name: str | None,
        request: object = "request",
        caller: str = "me",
        prompt: int = 1,
        owner: str = "",
    ) -> Session:
        sender = Caller(owner, owner or caller, caller)
        return self.sessions.open(name, sender, request, lambda new_id: session(new_id, prompt))

    def latest(self, caller: str, owner: str = "") -> Session:
        return self.sessions.latest(Caller(owner, owner or caller, caller))


def empty(name: str, prompt: int = 1) -> Session:
    return Session(name, [prompt, 2], 2, TextSpec(seed=0), 10, {9})


def session(name: str, prompt: int = 1) -> Session:
    """A session with its first token."""
    made = empty(name, prompt)
    made.commit([3], TokenDetails(split("b")))
    return made


def test_another_text_under_an_id_in_use_is_a_conflict() -> None:
    table = Table()
    table.open("a", {"prompt": 1})
    assert table.open("a", {"prompt": 1}).id == "a"
    with pytest.raises(SessionConflict, match="session a was opened with another prefill"):
        table.open("a", {"prompt": 2}, prompt=2)
    assert table.open("a", {"prompt": [1]}).id == "a", "the same text in another form"


def test_idle_sessions_expire() -> None:
    table = Table(ttl=10)
    table.open("old")
    table.now = 6
    table.open("used")
    table.now = 10
    assert table.sessions.get("old").id == "old"  # alive for exactly its time to live; this use renews it
    table.now = 16.5
    assert [each.id for each in table.sessions.all()] == ["old"]
    assert table.removed == ["used"]
    table.now = 21
    with pytest.raises(UnknownSession):
        table.sessions.get("old")
    assert table.removed == ["used", "old"]


def test_a_running_request_keeps_its_session_alive() -> None:
    table = Table(ttl=10)
    opened = table.open("a")
    with table.sessions.in_use(opened), table.sessions.in_use(opened):
        table.now = 1000
        assert table.sessions.all() == [opened]
    table.now = 1009
    assert table.sessions.all() == [opened], "idle only since its answer"
    table.now = 1011
    assert table.sessions.all() == []


def test_each_caller_has_its_own_latest_session() -> None:
    table = Table()
    table.open("a", caller="me")
    table.open("b", caller="you")
    assert (table.latest("me").id, table.latest("you").id) == ("a", "b")
    table.open("c", caller="me")
    assert table.latest("me").id == "c"
    table.open("a", caller="me")
    assert table.latest("me").id == "a", "a repeated prefill counts"
    table.sessions.remove("a")
    with pytest.raises(UnknownSession, match="you have no latest session"):
        table.latest("me")
    assert table.latest("you").id == "b"
    table.open("b", caller="me")
    assert table.latest("me") is table.latest("you"), "without a key it belongs to every caller that knows its id"
    table.sessions.remove("b")
    for caller in ("me", "you"):
        with pytest.raises(UnknownSession, match="you have no latest session"):
            table.latest(caller)


def test_the_engine_is_told_a_client_and_a_scope() -> None:
    table = Table(capacity=4)
    one, same, other = (
        table.open(name, owner=owner) for name, owner in zip("abc", ["key-1", "key-1", "key-2"], strict=True)
    )
    assert (one.client, one.scope) == (same.client, same.scope)
    assert one.client != other.client and one.scope != other.scope
    assert table.open("d", caller="").client is None, "callers on a UNIX socket are not one client"


def test_a_prefill_without_a_token_leaves_no_session() -> None:
    """Refused, cancelled or failed: a retry opens the session anew, and it takes no place meanwhile."""
    table = Table()

    opened = table.sessions.open("a", ANYONE, "request", empty)
    with table.sessions.in_use(opened):
        with table.sessions.in_use(table.sessions.open("a", ANYONE, "request", empty)):
            pass
        assert table.sessions.all() == [opened], "the first request is still running"
    assert (len(table.sessions), table.removed) == (0, ["a"])
    with pytest.raises(UnknownSession, match="you have no latest session"):
        table.sessions.latest(ANYONE)
    again = table.sessions.open("a", ANYONE, "another request", empty)
    with table.sessions.in_use(again):
        again.commit([3], TokenDetails(split("b")))
    assert table.sessions.all() == [again]


def test_a_replacing_session_takes_over_latest_and_no_second_place() -> None:
    """A resumed text may start with more tokens than the session in the table has."""
    table = Table(capacity=2)
    held, other = table.open("a"), table.open("b", caller="you")

    def ahead(name: str) -> Session:
        made = empty(name)
        made.resume([3, 4, 5])
        return made

    with table.sessions.in_use(held):
        resumed = table.sessions.open("a", Caller("", "me", "me"), "resumed", ahead)
        assert resumed is not held
        with table.sessions.in_use(resumed):
            resumed.commit([6], TokenDetails(split("b")))
    assert set(table.sessions.all()) == {resumed, other}
    assert table.latest("me") is resumed
    assert table.removed == []
    table.open("c")
    assert table.removed == ["b"]


def test_a_session_is_the_latest_of_a_bounded_number_of_callers() -> None:
    table = Table()
    for number in range(CALLERS + 2):
        table.open("same", owner="all", caller=str(number))
    for number in range(2):
        with pytest.raises(UnknownSession, match="no latest session"):
            table.latest(str(number), owner="all")
    assert table.latest("2", owner="all").id == "same"
    table.open("other", owner="all", caller="2")
    table.sessions.remove("same", "all")
    assert table.latest("2", owner="all").id == "other"


def test_news_are_runs_of_tokens_that_the_verifier_wrote_by_itself_and_of_others() -> None:
    """Predicted tokens belong to the step that decodes the one behind them, and forced ones to those before them."""
    made = Session("a", [1, 2], 2, TextSpec(seed=0), 40, {9})
    for marks, forward in (("b", 1.0), ("aab", 2.0), ("hht", 3.0), ("f", 0.0), ("txx", 4.0), ("r", 5.0), ("hh", 6.0)):
        made.commit([3] * len(split(marks)), TokenDetails(split(marks)), forward)
    found = [(run.position, len(run.tokens), joined(run.details.sources), run.target_decoded) for run in made.news(2)]
    assert found == [(2, 4, "baab", False), (6, 5, "hhtftxx", True), (11, 1, "r", False), (12, 2, "hh", True)]
    assert [run.forward for run in made.news(8)] == [6.0, None, 6.0], "of the last step"
