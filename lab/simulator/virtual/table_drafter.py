"""A drafter by table, for thousands: when it sends what is drawn from what real controllers did in the same scenario.

Drafters with the real controller (`Recorded`) write a `Table` of what they do in each situation. A drafter by table
draws from it after each thing that happens to it: an empirical semi-Markov process. So waiting, draft steps and draft
lengths are those of the real drafters; the link, the verifier's scheduler and the acceptance are simulated as they are
for them. What is lost: a length that follows from the confidence of single tokens, and what tells texts apart.

The table holds for the scenario that it was fitted in (costs, link, load).
"""

import random
from collections.abc import Callable, Sequence
from functools import partial

from lab.simulator.virtual.drafter import Course, VirtualDrafter
from lab.simulator.virtual.message_sizes import SIZES
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.table import Next, Situation, Standing, Table
from lab.simulator.virtual.wire import Wire, submit
from lab.simulator.virtual.world import Place, World, or_raise
from specpair.drafters.run.events import Committed, RunEvent
from specpair.speculation.draft import Draft
from specpair.speculation.policy.rejection_policy import UNSAID, RejectionPolicy
from specpair.speculation.policy.verifier_timeline import InFlightDraft
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session

_REPORT = 0.5  # seconds after which a drafter with nothing under way sends an empty draft, as the real one does


class Recorded(VirtualDrafter):
    """A drafter with the real controller that writes into `table` what it does."""

    table: Table | None = None  # None: nothing is recorded
    _standing: Standing
    _situation: Situation | None = None
    _since = 0.0

    def send(self, in_flight_draft: InFlightDraft) -> None:
        self._follow()
        standing, now = self._standing, self._world.now
        tokens = in_flight_draft.draft.ids
        fresh = max(0, len(tokens) - len(standing.path)) if tokens else None
        standing.sent(tokens, in_flight_draft.policy, now)
        self._happened(Next(now - self._since, fresh, in_flight_draft.policy))
        super().send(in_flight_draft)

    def _count(self, event: RunEvent, now: float) -> None:
        super()._count(event, now)
        if isinstance(event, Committed):
            self._follow()

    def _opened(self, answer: Answer) -> None:
        now = self._world.now
        self._standing = Standing(answer.position + len(answer.tokens), now)
        self._situation, self._since = self._standing.situation(now), now
        super()._opened(answer)

    def _follow(self) -> None:
        """Take in what was committed. Of one event, the reactor sends drafts before it tells of the tokens."""
        assert self.controller is not None
        new = self.controller.known[self._standing.known :]
        if new:
            self._standing.learnt(new, self._world.now)
            self._happened(None)

    def _happened(self, did: Next | None) -> None:
        now = self._world.now
        if self.table is not None and self._situation is not None:
            self.table.add(self._situation, now - self._since, did)
        self._situation, self._since = self._standing.situation(now), now


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
        place: Place,
        session: Session,
        draft: Callable[[int, int], list[int]],
        table: Table,
        network: Network = Network(),
        tell: Callable[[list[int]], object] = lambda tokens: None,
        seed: int | str = 0,
        at: Callable[[float, Callable[[], object]], None] | None = None,
        *,
        self_continue: bool = True,
    ) -> None:
        """`draft`: the drafter's tokens from a position on, and how many.
        `tell`: takes the committed tokens as they arrive, those of the prefill first.
        `seed`: of what is drawn, and of the network's random numbers.
        `at`: like that of `place`, for what only this drafter has to know of; None: that one.
        `self_continue`: whether the verifier may go on by itself, and streams what it commits; else it only answers.
        """
        self.course, self.session = Course(), session
        self.session.self_continue = self_continue
        self.finished = False
        self._place, self._draft, self._table, self._rtt = place, draft, table, network.rtt
        self._tell, self._rng = tell, random.Random(seed)
        self._standing = Standing(len(session.tokens), place.now)
        self._heard = 0  # position up to which tokens were put on the stream
        self._at = at or place.at
        self._wire = Wire(place, network, self._rng, at=self._at)
        self._next: Next | None = None  # what it does at `_due`, if nothing happens before
        self._due = 0.0

    def start(self) -> None:
        """Send the prefill request."""
        known, prompt = self._standing.known, self.session.prompt_len
        self._request(
            Draft(known),
            RejectionPolicy(next_in=self._rtt),
            SIZES.prefill.of(known),
            lambda answer: self._wire.down(
                SIZES.prefill_reply.of(prompt + len(answer.tokens)), lambda: self._opened(answer)
            ),
        )

    def _opened(self, answer: Answer) -> None:
        self.course.opened = self._place.now
        self._standing = Standing(answer.position + len(answer.tokens), self._place.now)
        self._heard = self._standing.known
        self.finished = answer.finish_reason is not None
        self._tell(answer.tokens)
        if self.session.self_continue:
            self.session.watchers = (self._news,)
            self._news()
        self._decide()

    def _news(self) -> None:
        """Put newly committed tokens on the stream. Called by the verifier."""
        session, position = self.session, self._heard
        tokens = session.tokens[position:]
        if tokens:
            self._heard = position + len(tokens)
            ended = session.finish_reason is not None
            self._wire.stream(SIZES.streamed.of(len(tokens)), partial(self._learn, position, tokens, ended))

    def _answered(self, answer: Answer) -> None:
        """Count what an answer brings, and send it, unless its tokens arrive on the stream as soon."""
        self.course.judged, self.course.accepted = self.session.drafted, self.session.accepted
        size = SIZES.verify_reply.of(len(answer.tokens))
        arrives = self._wire.downwards.arrival(self._place.now, size)
        if not self.session.self_continue or arrives < self._wire.streamed:
            ended = answer.finish_reason is not None
            self._place.at(arrives, lambda: self._learn(answer.position, answer.tokens, ended))

    def _learn(self, position: int, tokens: list[int], ended: bool) -> None:
        """Take in committed tokens from `position` on."""
        known = self._standing.known
        new = tokens[known - position :] if position <= known else []
        self.finished = self.finished or ended
        if new:
            self.course.times += [self._place.now] * len(new)
            self._tell(new)
            self._standing.learnt(new, self._place.now)
            self._decide()

    def _decide(self) -> None:
        """Draw what is done next, and set the timer for it, in place of the last one."""
        self._next = None
        if self.finished:
            return
        now = self._place.now
        situation = self._standing.situation(now)
        drawn = self._table.draw(situation, self._rng)
        if drawn is None:
            if situation.open:
                return
            policy = RejectionPolicy(self_continue=True) if self.session.self_continue else UNSAID
            drawn = Next(max(0.0, _REPORT - situation.since), None, policy)
        self._next, self._due = drawn, now + drawn.delay
        self._at(self._due, self._awake)

    def _awake(self) -> None:
        chosen, now, standing = self._next, self._place.now, self._standing
        if chosen is None or now != self._due or self.finished:
            return  # something has happened since this timer was set
        count = 0 if chosen.fresh is None else len(standing.path) + chosen.fresh
        count = min(count, self._place.scheduler.max_drafts, self.session.limit - standing.known - 1)
        tokens = self._draft(standing.known, count)
        standing.sent(tokens, chosen.policy, now)
        self.course.drafts_sent += 1
        self._request(Draft.chain(standing.known, tokens), chosen.policy, SIZES.verify.of(len(tokens)), self._answered)
        self._decide()

    def _request(self, draft: Draft, policy: RejectionPolicy, size: float, answered: Callable[[Answer], None]) -> None:
        """Send a request of `size` bytes. `answered`: called at the verifier with the answer."""
        request = Request(self.session, draft, or_raise(answered), policy=policy)
        self._wire.up(size, partial(self._submit, request, size))

    def _submit(self, request: Request, size: float) -> None:
        if not self.finished:
            submit(self._place, request, self._wire, size)
