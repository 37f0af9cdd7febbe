"""What to draft and what to send, moment by moment: the drafter's decisions, without its engine, network or clock.

The pilot knows the committed text, a tree of drafts behind it, and the guesses that are under way. It is told what
happens (a draft step ended, an answer came, the verifier went on by itself) and asked what to do next. Times are
milliseconds on one clock, the caller's. Positions count tokens from the prompt's first.

One more draft pays if it adds more chance of a token than its time costs (`draft_length`), and its time costs nothing
as long as the guess still comes before the verifier is through with what it has (`timeline`). So a guess leaves just in
time to be there when the verifier becomes free: after its drafts in lockstep; before the last answer when there is one
under way; several at once when the way is long. With the time left, the drafter looks behind likely corrections, so
that after a miss the next guess is often ready (SpecEdge, arXiv 2505.17052; SSD, arXiv 2603.03251; PEARL, 2408.11850).
What stood in the text before costs no time at all (`ngram`): drafted where likelier than what the model says.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import inf

from speculation.drafts.committed_text import CommittedText
from speculation.drafts.ngram import NgramIndex
from speculation.drafts.node_selection import FLOOR, DraftStep, select_nodes
from speculation.drafts.tree import Prediction, TreeNode
from speculation.policy.draft_length import MAX_AUTO, prospects, worth_sending
from speculation.policy.draft_plan import DraftPlan, best_plan, fixed_plan
from speculation.policy.rejection_policy import NOT_SOON
from speculation.policy.schedule import LOCKSTEP, Mechanisms, Schedule
from speculation.policy.timing import LatencyModel
from speculation.policy.verifier_timeline import InFlightDraft, VerifierTimeline

_AHEAD = 6  # further drafts that are thought about
_LONGEST = 96  # drafts behind the committed text at most
_WORTH = 0.01  # tokens that a guess must bring by leaving before the last answer is there
_TICK_MS = 0.05  # a moment that has come but for so much has come: timers are no finer
_SPEAK_MS, _SPEAK_TOKENS = 500.0, 16  # after which the verifier is told how far we know the text
_SHADOW = 8  # committed tokens after which one is drafted although no guess pays, to see whether it would
_FIRST_MOST = 6  # drafts in a guess at first, until it is known that so many pay


class SpeculationController:
    """See the module."""

    def __init__(
        self,
        tokens: Sequence[int],
        limit: int,
        ends: AbstractSet[int],
        times: LatencyModel,
        *,
        max_drafts: int,
        width: int = 1,
        length: int | None = None,
        mechanisms: Mechanisms = Mechanisms(),
        next_in_ms: float = 0.0,
        lookup: NgramIndex | None = None,
        always_send: bool = False,
        now: float = 0.0,
    ) -> None:
        """`tokens`: prompt and what is committed. `limit`: tokens at which the text ends. `ends`: tokens that end it.

        `max_drafts`: that the verifier judges at once. `width`: continuations that the drafter can look behind at once.
        `length`: fixed drafts a guess, None for automatic. `next_in_ms`: what the verifier was told with the prompt.
        `lookup`: of the text, for drafts without the model; None: no such drafts. `always_send`: each draft that was
        drawn goes with the next guess, with what it is from: to drop some for what they are would favour others.
        In lockstep only; raises ValueError elsewhere.
        """
        if always_send and mechanisms != LOCKSTEP:
            raise ValueError("drafts that must be sent can be had in lockstep only")
        self.text = CommittedText(tokens, ends, lookup)
        self.known = self.text.known
        self.finished = False
        self.mechanisms = mechanisms
        self._always_send = always_send
        self._limit, self._max_drafts, self._width, self._length = limit, max_drafts, width, length
        self._times = times
        self._tree = self.text.tree
        self._timeline = VerifierTimeline(times, mechanisms.self_continue, len(self.known), next_in_ms, now)
        self._in_flight_drafts = self._timeline.in_flight_drafts
        self._step: DraftStep | None = None
        self._answered: tuple[InFlightDraft, bool] | None = None  # and whether it was judged
        self._spoke_at, self._told = now, len(self.known)
        self._most = _FIRST_MOST
        self._unlearnt = False  # whether anything was committed since `reflect`
        self._seen: tuple[float, DraftPlan | None] | None = None
        self._weigh()

    @property
    def schedule(self) -> Schedule:
        """What pays at present."""
        if self.mechanisms.self_continue and not self._aim:
            return Schedule.SELF_CONTINUED
        return Schedule.OVERLAPPED if self._prospects.overlap else Schedule.LOCKSTEP

    # What happened.

    def drafted(self, predictions: Sequence[Prediction], read: int, now: float, onward: bool = False) -> float:
        """The draft step under way ended; `read` tokens went through the model. Returns how long it took.

        `onward`: the next one has begun, behind the first choice (`DraftStep.onward`).
        """
        step, self._step, self._seen = self._step, None, None
        assert step is not None
        took = now - step.began
        if read <= len(step.nodes):
            self._times.drafted(len(step.nodes), took)
        for node, prediction in zip(step.nodes, predictions, strict=True):
            self._tree.grow(node, prediction)
        if onward:
            first = predictions[0]
            behind = [child for child in step.nodes[0].children or () if child.token == first.token]
            behind = behind or [TreeNode(first.token, first.confidence, None)]
            step.nodes, step.tails, step.began = behind, [[*step.tails[0], first.token]], now
            self._step = step
        return took

    def answered(
        self,
        in_flight_draft: InFlightDraft,
        judged: int,
        queue_ms: float,
        forward_ms: float,
        now: float,
        sessions: int = 1,
    ) -> None:
        """The answer to a guess came; `committed` is told its tokens next. `sessions`: that shared its pass."""
        waited = in_flight_draft is self._in_flight_drafts[0] and not self._timeline.goes_on
        self._timeline.arrived(in_flight_draft)
        self._seen = None
        self._times.exchanged(now - in_flight_draft.sent_at, queue_ms, forward_ms)
        if forward_ms > 0.0:
            self._times.verified(judged, forward_ms)
            self._times.shared(judged, sessions)
            if waited:
                self._times.queued(queue_ms)
        self._answered = (in_flight_draft, judged > 0) if in_flight_draft.drafts else None

    def went_on(self, forward_ms: float) -> None:
        """The verifier took a step by itself, in a pass that took so long; `committed` is told what it brought."""
        self._seen = None
        self._times.verified(0, forward_ms)
        self._times.shared(0)

    def committed(self, position: int, tokens: Sequence[int], finished: bool, now: float) -> list[int]:
        """Committed tokens from `position` on became known; returns those that are new."""
        if position > len(self.known):  # what lies between will come, and this with it
            return []
        new = list(tokens[len(self.known) - position :])
        for at, token in enumerate(new, len(self.known)):
            self._timeline.committed(at, token)
        self.text.commit(new)
        if new or self._answered is not None:
            self._seen = None
            self._timeline.news(len(self.known), now)
            if self._answered is not None:
                self._expect(*self._answered, now)
        self._unlearnt = self._unlearnt or bool(new)
        self._answered = None
        self.finished = self.finished or finished
        return new

    def reflect(self) -> bool:
        """Learn from what was committed; whether there was anything, so that it pays to ask once more what to do.

        It takes longer than deciding does, so it is for when all that can be done at once is under way.
        """
        if not self._unlearnt:
            return False
        self._unlearnt, self._seen = False, None
        self.text.learn()
        self._weigh()
        return True

    # What to do.

    def next_guess(self, now: float) -> InFlightDraft | None:
        """A guess to send now, which counts as under way from here on."""
        if self.finished or len(self._in_flight_drafts) >= self.mechanisms.in_flight:
            return None
        if self._in_flight_drafts and not self._prospects.overlap:
            return None
        if self._always_send and self._step is not None:
            return None
        self._look_up(now)
        goes_on, next_in = self._prospects.rejection_policy
        path = self._guess(now)
        if path is None and self._must_speak(now):
            path, goes_on = [], True  # as it does: nobody knows when there will be a draft to wait for
        if path is None:
            return None
        in_flight_draft = InFlightDraft(
            len(self.known),
            [node.token for node in path],
            now,
            next_in if path else NOT_SOON,
            goes_on if self.mechanisms.self_continue else None,
            found=[node.found for node in path],
            confidence=[node.confidence for node in path],
            probs=[node.probs or {node.token: 1.0} for node in path] if self._always_send else None,
        )
        self._seen = None
        self._timeline.sent(in_flight_draft)
        self._spoke_at, self._told = now, len(self.known)
        return in_flight_draft

    def next_step(self, now: float) -> DraftStep | None:
        """A draft step to begin now, which counts as under way from here on."""
        if self._step is not None:
            self._step.until = len(self._step.tails[0]) + self._leads_on(now)
            return None
        if self.finished or (self._in_flight_drafts and not self._prospects.overlap):
            return None
        self._look_up(now)
        nodes = self._nodes(now)
        if not nodes:
            return None
        tails = [self._tree.tail(node) or [] for node in nodes]
        self._step = DraftStep(nodes, tails, len(self.known), self.mechanisms.corrections, now)
        self._seen = None
        self._step.until = len(tails[0]) + self._leads_on(now)
        return self._step

    def wake_at(self, now: float) -> float | None:
        """When to ask again although nothing has happened; None: not before something has."""
        if self.finished:
            return None
        times = []
        if self._timeline.goes_on and not self._in_flight_drafts:
            times.append(self._spoke_at + _SPEAK_MS)
        elif self._step is not None and self.mechanisms.self_continue and not self._in_flight_drafts:
            times.append(self._due())
        if not self._timeline.is_late(now):  # else what is soonest moves along with now: nothing to wait for
            times.append(self._soonest(now))
        return min((at for at in times if at > now + _TICK_MS), default=None)

    # How it decides.

    @property
    def _aim(self) -> int:
        """Drafts a guess that pay best, as far as can be told."""
        return self._prospects.length if self._length is None else self._length

    @property
    def _ahead_pays(self) -> bool:
        """Whether to draft while the verifier is at work."""
        return self._aim > 0 or (self._length is None and self._prospects.alongside)

    @property
    def _cap(self) -> int:
        """Drafts of a guess that are judged, at most."""
        return min(self._most if self._length is None else self._length, self._max_drafts)

    @property
    def _room(self) -> int:
        """Drafts that may be sent: the last token before the limit is the target's own."""
        return min(self._limit - len(self.known) - 1, self._max_drafts, _LONGEST)

    def _weigh(self) -> None:
        chances = self.text.chances(ahead=MAX_AUTO + 1)
        self._prospects = prospects(self._times, chances, self.mechanisms, self.text.ready)
        if self._prospects.length >= self._most:
            self._most = min(2 * self._most, MAX_AUTO)

    def _expect(self, in_flight_draft: InFlightDraft, judged: bool, now: float) -> None:
        """When the verifier expects the next guess: at once behind one that stood, else when it was told."""
        if self.known[in_flight_draft.position : in_flight_draft.end] == in_flight_draft.drafts:
            self._timeline.expects(0.0 if judged else None, now)
        elif judged:  # else it was told when another fell
            self._timeline.expects(in_flight_draft.next_in_ms, now)

    def _must_speak(self, now: float) -> bool:
        """Whether to let a verifier that goes on by itself know that we follow, or one that waits, that it should."""
        if self._in_flight_drafts or not self.mechanisms.self_continue:
            return False
        if not self._timeline.goes_on:
            return now >= self._due() - _TICK_MS
        return now - self._spoke_at >= _SPEAK_MS - _TICK_MS or len(self.known) - self._told >= _SPEAK_TOKENS

    def _plan(self, now: float) -> DraftPlan | None:
        """The best to do about the next guess; None where none pays."""
        if self._seen is None or self._seen[0] != now:
            self._seen = now, self._look_out(now)
        return self._seen[1]

    def _look_out(self, now: float) -> DraftPlan | None:
        main, waited_for = self._tree.main(), self._timeline.waits(now)
        made, draft, tip = len(main), self._times.draft(), self.text.tip(main)
        ahead = min(self._reach_ahead(now) - made, _AHEAD) if self._tree.is_open(tip) else 0
        chances = self.text.chances(main, max(0, ahead))
        if not waited_for and chances[made] < FLOOR:
            ahead = 0
        first = now + draft
        if self._step is not None:
            over = max(now, self._step.began + self._times.draft(len(self._step.nodes)))
            first = over if tip in self._step.nodes else over + draft
        # Of a verifier at work nobody knows to the moment when it is through: do not gamble on a draft made by then.
        slack = 0.0 if waited_for else self._times.margin
        moments = [now, *(first + slack + number * draft for number in range(ahead))]
        starts = self._timeline.starts(moments, now)
        known = len(self.known)
        if self._length is not None:
            return fixed_plan(starts[0].position - known, made, ahead, self._cap, self._room, waited_for)
        return best_plan(starts, chances, made, known, self._cap, waited_for, self._times, self._prospects)

    def _reach_ahead(self, now: float) -> int:
        """Drafts behind the committed text that the next guess could hold."""
        return min(self._timeline.starts([now], now)[0].position - len(self.known) + self._cap, self._room)

    def _look_up(self, now: float) -> None:
        """Draft without the model where asking it does not pay, or would say less: to look up costs no time."""
        if self.text.lookup is None or self._shadow_is_due(now):
            return
        busy = now >= self._due()
        asked = self._step.nodes if self._step is not None and not busy else ()
        if self.text.look_up(self._reach_ahead(now), asked, always=busy or not self._aim):
            self._seen = None

    def _due(self) -> float:
        """When a step of the verifier has been lost to the draft step under way: it may have to read a prompt first."""
        if self._step is None:
            return inf
        return self._step.began + self._times.draft(len(self._step.nodes)) + self._times.verify(0)

    def _soonest(self, now: float) -> float:
        """When a guess has to leave to be there as the verifier becomes free; before that there is no hurry."""
        return self._timeline.starts([now], now)[0].at - self._times.link / 2 - self._times.margin

    def _guess(self, now: float) -> list[TreeNode] | None:
        """The drafts of a guess that should leave now."""
        if now < self._soonest(now) - _TICK_MS:
            return None
        plan = self._plan(now)
        if plan is None or plan.more or (self._timeline.waits(now) and self._shadow_is_due(now)):
            return None
        path = self._tree.main()[: max(0, self._room)]
        if self._length is None:
            chances = self.text.chances(path)
            count = worth_sending(self._times, chances, plan.skip, self._cap, self._prospects.price)
            if self._always_send:
                count = max(count, *(at for at, node in enumerate(path, 1) if node.probs), 0)
            if (
                self._in_flight_drafts
                and chances[min(plan.skip, len(path))] * self._times.link * self._prospects.rate < _WORTH
            ):
                return None  # hardly anything would be lost by waiting to see whether it is of use
        else:
            count = min(len(path), plan.skip + self._cap)
        if count <= plan.skip and not self._timeline.waits(now):
            return None
        if any(
            in_flight_draft.end >= len(self.known) + count
            for in_flight_draft in self._in_flight_drafts
            if not in_flight_draft.stale
        ):
            return None  # it is on its way already
        return path[:count]

    def _nodes(self, now: float) -> list[TreeNode]:
        """Where to look further, the likeliest first."""
        if self._timeline.waits(now) or not self._prospects.overlap:
            plan = self._plan(now)
            if plan is not None and plan.more:
                return [self.text.tip(self._tree.main())]
        elif self._ahead_pays:
            ranked = self._ranked(self._reach_ahead(now))
            if ranked:
                return select_nodes(ranked, self._times.draft, self._width)
            return []
        return [self._tree.root] if self._shadow_is_due(now) else []

    def _leads_on(self, now: float) -> bool:
        """Whether the step behind the one under way is to be the next along the path, whatever this one finds."""
        if self.finished or self._step is None or not self._prospects.overlap:
            return False
        main = self._tree.main()
        node = self.text.tip(main)
        if node is not self._step.nodes[0] or not self._tree.is_open(node):
            return False
        if self._timeline.waits(now):
            plan = self._plan(now)
            return plan is not None and plan.more > 1
        deepest = self._reach_ahead(now)
        if not self._ahead_pays or len(main) + 1 >= deepest:
            return False
        ranked = self._ranked(deepest)
        chance = next((chance for chance, each in ranked if each is node), 0.0) * self.text.typical
        others = [other for other in ranked if other[1] not in self._step.nodes]
        return chance >= FLOOR and len(select_nodes([(chance, node), *others], self._times.draft, self._width)) == 1

    def _shadow_is_due(self, now: float) -> bool:
        """Whether to draft one token although no guess pays, to see whether it would have stood."""
        if self._length is not None or self._room <= 0 or self._step is not None:
            return False
        if not self._tree.is_open(self._tree.root):
            return False
        patience = float(_SHADOW)
        if self._timeline.waits(now):  # it takes the time of a verifier that waits
            patience = max(patience, _SHADOW * self._times.draft() / (0.16 * self._times.verify(0)))
        return self.text.untested >= patience

    def _ranked(self, deepest: int) -> list[tuple[float, TreeNode]]:
        """Open places with the chance that the text goes through them; as deep as a guess would go."""
        beyond_fork = self._cap if self.mechanisms.corrections else 0
        return self.text.places(deepest, beyond_fork)
