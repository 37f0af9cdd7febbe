"""A drafter by table, for thousands: when it sends what is drawn from what real controllers did in the same scenario.

Fitting. Drafters with the real controller run for a short time (`Recorded`). Two things happen to a drafter: it sends
a draft, and it learns of committed tokens, which confirm its path, contradict it, or go beyond it. A situation is the
last of these and the number of drafts in flight then. For each one, the table keeps what came next: a draft after some
time, with so many fresh tokens and such a policy; or no draft, where something else happened first. A drafter by
table draws one of these after each happening: an empirical semi-Markov process. So waiting, draft steps and draft
lengths are those of the real drafters on average; the link, the verifier's scheduler and the acceptance are simulated
as they are for them. What is lost: a length that follows from the confidence of tokens, and learning within a text.

The table holds for the scenario that it was fitted in (costs, link, load); `disagreement` says by how much it is off.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from simulator.known_outputs.capacity_model import Metrics
from simulator.virtual.drafter import Course, VirtualDrafter
from simulator.virtual.world import Network, World, or_raise, submit
from specpair.drafters.run.events import Committed, RunEvent
from specpair.speculation.draft import Draft
from specpair.speculation.policy.rejection_policy import RejectionPolicy
from specpair.speculation.policy.verifier_timeline import InFlightDraft
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session

_MOST = 3  # drafts in flight from which on situations are one
_REPORT = 0.5  # seconds after which a drafter with nothing under way sends an empty draft, as the real one does

Situation = tuple[str, int]  # "sent", "confirmed", "missed" or "beyond", and the drafts in flight, `_MOST` at most


class Next(NamedTuple):
    """What a drafter did next in a situation: it sent a draft before anything else happened."""

    delay: float  # seconds
    fresh: int | None  # draft tokens beyond the path that was sent before; None: an empty draft
    policy: RejectionPolicy


@dataclass
class Table:
    """For each situation, what came next, once for each time that it occurred; None: something else happened."""

    rows: dict[Situation, list[Next | None]] = field(default_factory=lambda: defaultdict(list))

    def draw(self, situation: Situation, rng: random.Random) -> Next | None:
        """What a drafter does next; None: nothing."""
        rows = self.rows.get(situation)
        return rng.choice(rows) if rows else None


class _Path:
    """The draft tokens that were sent behind the committed text, as far as nothing contradicts them."""

    def __init__(self) -> None:
        self.tokens: list[int] = []  # the next one that may be committed is the first

    def commit(self, tokens: Sequence[int]) -> str:
        """Take in committed tokens; return the kind of the situation."""
        shared = min(len(tokens), len(self.tokens))
        if list(tokens[:shared]) != self.tokens[:shared]:
            self.tokens = []
            return "missed"
        kind = "confirmed" if len(tokens) <= len(self.tokens) else "beyond"
        self.tokens = self.tokens[len(tokens) :]
        return kind


class Recorded(VirtualDrafter):
    """A drafter with the real controller that writes into `table` what it does."""

    table: Table | None = None  # None: nothing is recorded
    _situation: Situation | None = None
    _since = 0.0

    def send(self, in_flight_draft: InFlightDraft) -> None:
        self._follow()
        tokens = [each.token for each in in_flight_draft.draft.tokens]
        fresh = max(0, len(tokens) - len(self._path.tokens)) if tokens else None
        self._happened("sent", Next(self._world.now - self._since, fresh, in_flight_draft.policy))
        if len(tokens) > len(self._path.tokens):
            self._path.tokens = tokens
        super().send(in_flight_draft)

    def _count(self, event: RunEvent, now: float) -> None:
        super()._count(event, now)
        if isinstance(event, Committed):
            self._follow()

    def _opened(self, answer: Answer) -> None:
        self._path, self._taken_in = _Path(), answer.position + len(answer.tokens)
        super()._opened(answer)

    def _follow(self) -> None:
        """Take in what was committed. Of one event, the reactor sends drafts before it tells of the tokens."""
        assert self.controller is not None
        new = self.controller.known[self._taken_in :]
        if new:
            self._taken_in += len(new)
            self._happened(self._path.commit(new), None)

    def _happened(self, kind: str, did: Next | None) -> None:
        assert self.controller is not None
        if self.table is not None and self._situation is not None:
            self.table.rows[self._situation].append(did)
        self._situation = kind, min(len(self.controller.drafts_in_flight), _MOST)
        self._since = self._world.now


def fit(world: World, drafters: Sequence[Recorded], warm_up: float, seconds: float) -> Table:
    """The table of what `drafters`, which have been started, do in `seconds` seconds of `world` behind `warm_up`."""
    table = Table()
    world.run(until=world.now + warm_up)
    for each in drafters:
        each.table = table
    world.run(until=world.now + seconds)
    for each in drafters:
        each.table = None
    return table


class TableDrafter:
    """One drafter by `table` with its text, from the prompt to the end."""

    def __init__(
        self,
        world: World,
        session: Session,
        draft: Callable[[int, int], list[int]],
        table: Table,
        network: Network = Network(),
        seed: int | str = 0,
    ) -> None:
        """`draft`: the drafter's tokens from a position on, and how many.
        `seed`: of what is drawn, and of the network's random numbers.
        """
        self.course, self.session = Course(), session
        self.finished = False
        self._world, self._draft, self._table, self._network = world, draft, table, network
        self._rng, self._path = random.Random(seed), _Path()
        self._known, self._in_flight, self._turn = len(session.tokens), 0, 0
        self._heard = 0

    def start(self) -> None:
        """Send the prefill request."""
        self.session.self_continue = True
        self._request(Draft(self._known), RejectionPolicy(next_in=self._network.rtt), self._opened)

    def _opened(self, answer: Answer) -> None:
        self.course.opened = self._world.now
        self._known = self._heard = answer.position + len(answer.tokens)
        self.finished = answer.finish_reason is not None
        self.session.watchers = (self._news,)
        self._next("beyond")

    def _news(self) -> None:
        """Tell the drafter of newly committed tokens. Called by the verifier."""
        for run in self.session.news(self._heard):
            self._heard = run.position + len(run.tokens)
            at, tokens, ended = run.position, list(run.tokens), self.session.ended_at(self._heard) is not None
            self._carry(lambda at=at, tokens=tokens, ended=ended: self._learn(at, tokens, ended))  # type: ignore[misc]

    def _learn(self, position: int, tokens: Sequence[int], ended: bool) -> None:
        """Take in committed tokens from `position` on."""
        new = tokens[self._known - position :] if position <= self._known else []
        self.finished = self.finished or ended
        if new:
            self._known += len(new)
            self.course.times += [self._world.now] * len(new)
            self._next(self._path.commit(new))

    def _answered(self, answer: Answer) -> None:
        self._in_flight -= 1
        self.course.judged += answer.judged
        self._learn(answer.position, answer.tokens, answer.finish_reason is not None)

    def _next(self, kind: str) -> None:
        """Draw what is done next, and set the timer for it, in place of the last one."""
        if self.finished:
            return
        self._turn += 1
        drawn = self._table.draw((kind, min(self._in_flight, _MOST)), self._rng)
        if drawn is None:
            if self._in_flight:
                return
            drawn = Next(_REPORT, None, RejectionPolicy(self_continue=True))
        turn, chosen = self._turn, drawn
        self._world.at(self._world.now + chosen.delay, lambda: self._send(turn, chosen))

    def _send(self, turn: int, chosen: Next) -> None:
        if turn != self._turn or self.finished:
            return
        count = 0 if chosen.fresh is None else len(self._path.tokens) + chosen.fresh
        count = min(count, self._world.scheduler.max_drafts, self.session.limit - self._known - 1)
        tokens = self._draft(self._known, count)
        if count > len(self._path.tokens):
            self._path.tokens = tokens
        self.course.drafts_sent += 1
        self._request(Draft.chain(self._known, tokens), chosen.policy, self._answered)
        self._in_flight += 1
        self._next("sent")

    def _request(self, draft: Draft, policy: RejectionPolicy, then: Callable[[Answer], None]) -> None:
        done = or_raise(lambda answer: self._carry(lambda: then(answer)))
        request = Request(self.session, draft, done, policy=policy)
        self._carry(lambda: submit(self._world, request, self._carry))

    def _carry(self, do: Callable[[], None]) -> None:
        """Call `do` when a message sent now has arrived, however often it must be sent."""
        self._world.at(self._network.arrival(self._world.now, self._rng), do)


class Disagreement(NamedTuple):
    """What drafters by table differ by from real controllers, as shares of the real values."""

    throughput: float  # of all drafters together
    p50: float  # of the time per token
    p95: float


def disagreement(real: Metrics, table: Metrics) -> Disagreement:
    """The error of a run of drafters by table beside one of real controllers, measured in the same seconds."""
    return Disagreement(table.rate / real.rate - 1.0, table.p50 / real.p50 - 1.0, table.p95 / real.p95 - 1.0)
