"""Which session a new one displaces, compared with a plain implementation of the rules, and `retry_after`."""

from collections import Counter
from collections.abc import Hashable
from contextlib import AbstractContextManager, ExitStack
from math import inf
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from specpair.http_service.keys.access import Caller
from specpair.protocol.errors import Overloaded
from specpair.speculation.acceptance.token_sources import TokenDetails, split
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.sequence_state import SILENCE
from verifier_server.session_admission import LINGER
from verifier_server.session_table import SessionTable
from verifier_server.sessions import Session

CAPACITY, QUOTA, TTL = 6, 3, 30.0


class Desk:
    """A table, a clock that the test sets, and the removed sessions."""

    def __init__(self, capacity: int = CAPACITY, quota: int = QUOTA, ttl: float = TTL, **told: Any) -> None:
        self.now = 0.0
        self.removed: list[Session] = []
        self.table = SessionTable(lambda: self.now, ttl, capacity, self.removed.append, quota=quota, **told)
        self._opened = 0

    def open(self, client: str = "me", *, self_continue: bool = False) -> Session:
        self._opened += 1

        def make(name: str) -> Session:
            made = Session(name, [1, 2], 2, TextSpec(seed=0), 10, (), self_continue=self_continue)
            made.commit([3], TokenDetails(split("b")))
            return made

        return self.table.open(f"s{self._opened}", Caller("", client, client), "request", make)

    def used(self, client: str = "me", **options: bool) -> AbstractContextManager[None]:
        """A new session, in use within the block."""
        return self.table.in_use(self.open(client, **options))


class Rules(RuleBasedStateMachine):
    """Clients open, use, leave and finish sessions; each displaced session is compared with a search over all."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.rested: dict[Session, float] = {}  # time since when it is at rest, or will be

    @property
    def held(self) -> list[Session]:
        return list(self.rested)

    def busy(self, session: Session) -> bool:
        return session.lease.requests > 0 or self.desk.now < self.rested[session]

    def pass_time(self, seconds: float) -> None:
        self.desk.now += seconds
        for session in self.held:
            if not session.lease.requests and self.rested[session] < self.desk.now - TTL:
                del self.rested[session]

    def expected(self, client: str) -> tuple[str, list[Session]]:
        """The outcome of a new session of `client`: "free", "full", or "displaces" with the candidates."""
        mine = [each for each in self.held if each.client == client]
        at_rest = [each for each in self.held if not self.busy(each)]
        if sum(map(self.busy, mine)) >= QUOTA:
            return "full", []
        if len(self.held) < CAPACITY:
            return "free", []
        if done := [each for each in at_rest if each.finish_reason is not None]:
            return "displaces", [min(done, key=self.rested.__getitem__)]
        counts = Counter(each.client for each in self.held)
        if len(mine) >= QUOTA:
            return "displaces", [min((each for each in at_rest if each.client == client), key=self.rested.__getitem__)]
        oldest: dict[Hashable, Session] = {}
        for each in sorted(at_rest, key=self.rested.__getitem__, reverse=True):
            oldest[each.client] = each
        if over := [each for name, each in oldest.items() if counts[name] > QUOTA]:
            return "displaces", over
        return ("displaces", [min(at_rest, key=self.rested.__getitem__)]) if at_rest else ("full", [])

    @rule(
        client=st.sampled_from("abc"), self_continue=st.booleans(), stays=st.booleans(), seconds=st.floats(0.001, 1.5)
    )
    def opens(self, client: str, self_continue: bool, stays: bool, seconds: float) -> None:
        self.pass_time(seconds)
        outcome, candidates = self.expected(client)
        before = len(self.desk.removed)
        if outcome == "full":
            with pytest.raises(Overloaded) as refused:
                self.desk.open(client, self_continue=self_continue)
            assert isinstance(refused.value.details["retry_after"], int) and refused.value.details["retry_after"] >= 1
            return
        session = self.desk.open(client, self_continue=self_continue)
        gone = [each for each in self.desk.removed[before:] if each in self.rested]
        assert (
            (len(gone) == 1 and gone[0] in candidates) if outcome == "displaces" else (outcome == "free" and not gone)
        )
        for each in gone:
            assert not each.lease.requests
            del self.rested[each]
        self.rested[session] = self.desk.now
        self.desk.table.use(session)
        if not stays:
            self.leave(session)

    @rule(number=st.integers(0, 99), seconds=st.floats(0.001, 1.5))
    def uses(self, number: int, seconds: float) -> None:
        self.pass_time(seconds)
        self.use(self.held, number)

    @rule(number=st.integers(0, 99))
    def uses_one_that_lingers(self, number: int) -> None:
        self.use([each for each in self.held if self.busy(each) and not each.lease.requests], number)

    def use(self, among: list[Session], number: int) -> None:
        if among:
            session = among[number % len(among)]
            mine = [each for each in self.held if each.client == session.client]
            if not self.busy(session) and sum(map(self.busy, mine)) >= QUOTA:
                with pytest.raises(Overloaded, match=f"one client may have {QUOTA}"):
                    self.desk.table.use(session)
            else:
                self.desk.table.use(session)

    @rule(number=st.integers(0, 99), seconds=st.floats(0.001, 1.5))
    def leaves(self, number: int, seconds: float) -> None:
        self.pass_time(seconds)
        used = [each for each in self.held if each.lease.requests]
        if used:
            self.leave(used[number % len(used)])

    def leave(self, session: Session) -> None:
        self.desk.table.leave(session)
        if not session.lease.requests:
            lingers = session.self_continue and session.finish_reason is None
            self.rested[session] = self.desk.now + LINGER * lingers

    @rule(number=st.integers(0, 99))
    def finishes(self, number: int) -> None:
        used = [each for each in self.held if self.busy(each)]
        if used:
            used[number % len(used)].finish_reason = "stop"

    @rule(number=st.integers(0, 99), seconds=st.floats(0.001, 1.5))
    def looks_up(self, number: int, seconds: float) -> None:
        """A lookup renews a session at rest; it does not restart self-continuation."""
        self.pass_time(seconds)
        if self.held:
            session = self.held[number % len(self.held)]
            assert self.desk.table.get(session.id) is session
            if not self.busy(session):
                self.rested[session] = self.desk.now

    @rule(number=st.integers(0, 99))
    def deletes(self, number: int) -> None:
        if self.held:
            session = self.held[number % len(self.held)]
            self.desk.table.remove(session.id)
            del self.rested[session]

    @rule()
    def all_clients_pause(self) -> None:
        self.pass_time(TTL)

    @invariant()
    def the_same_sessions_are_held(self) -> None:
        assert set(self.desk.table.all()) == set(self.held)
        assert len(self.held) <= CAPACITY


Rules.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None, derandomize=True)
TestRules = Rules.TestCase


def test_a_session_lingers_as_long_as_the_scheduler_continues_it() -> None:
    assert LINGER == SILENCE


def test_retry_after_is_exact_if_all_sessions_linger() -> None:
    desk = Desk(2, 2)
    for at in (10.0, 10.5):
        desk.now = at
        with desk.used(self_continue=True):
            pass
    desk.now = 10.9
    with pytest.raises(Overloaded) as refused:
        desk.open("new")
    assert refused.value.details == {"retry_after": 2}, "1.1 seconds, rounded up"
    desk.now = 11.99
    with pytest.raises(Overloaded):
        desk.open("new")
    desk.now = 12.0
    assert desk.open("new")


def test_text_is_under_way_until_its_client_was_silent_or_it_has_ended() -> None:
    desk = Desk()
    assert desk.table.admission.text_under_way() == 0.0
    session = desk.open()
    assert desk.table.admission.text_under_way() == SILENCE
    with desk.table.in_use(session):
        desk.now += 10 * SILENCE
        assert desk.table.admission.text_under_way() == inf
    desk.now += SILENCE / 4
    assert desk.table.admission.text_under_way() == 0.75 * SILENCE
    desk.now += SILENCE
    assert desk.table.admission.text_under_way() == 0.0
    with desk.table.in_use(session):
        session.finish_reason = "length"
    assert desk.table.admission.text_under_way() == 0.0


def test_table_is_full_only_while_all_sessions_are_in_use() -> None:
    desk = Desk(capacity=2, quota=2)
    with desk.used(), ExitStack() as other:
        assert not desk.table.admission.full
        other.enter_context(desk.used())
        assert desk.table.admission.full and desk.table.admission.in_use == 2
        other.close()
        assert not desk.table.admission.full and desk.table.admission.in_use == 1


def test_changes_are_told_and_new_sessions_can_be_refused() -> None:
    changes, full = list[int](), False

    def check_new() -> None:
        if full:
            raise Overloaded("no")

    desk: Desk = Desk(check_new=check_new, on_change=lambda: changes.append(len(desk.table)))
    with desk.used():
        assert changes == []
    assert changes == [1]
    full = True
    with pytest.raises(Overloaded):
        desk.open()
    assert len(desk.table) == 1
    desk.table.remove("s1")
    assert changes == [1, 0]
