"""Decides what to draft and when to send drafts. The controller has no engine, no network and no clock.

The controller knows the committed text, the draft tree behind it, and the verify requests in flight. The caller reports
events (a draft step ended, a response came, the verifier decoded a token by itself) and asks what to do next. Times are
seconds on the caller's clock. Positions count tokens from the first token of the prompt.

One more draft token pays if its chance of acceptance is worth more than the time it costs (`draft_length`). Drafting
costs nothing while the verifier is busy anyway (`verifier_timeline`). So a verify request leaves just in time to arrive
when the verifier becomes free. In lockstep that is after drafting. While another request is in flight, it is before the
response to that one; on a link with a long round trip, several requests leave in a row. With the time left, the drafter
prepares drafts behind likely recovered tokens, so that after a rejection the next draft is often ready (SpecEdge, arXiv
2505.17052; SSD, arXiv 2603.03251; PEARL, arXiv 2408.11850). Tokens found by lookup cost no time: in the text (`ngram`),
or in the client's prediction of the output (`predicted_output`). They are drafted where they are likelier to be
accepted than the draft model's next token, or so little less that its time is worth more.

Three parts share the work: `DraftingState` holds what is known, `SendPolicy` says what to send, and `ExpandPolicy` what
to draft.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from specpair.speculation.acceptance.token_sources import SelfContinued
from specpair.speculation.draft import Draft, TreeLimits
from specpair.speculation.drafting.committed_text import CommittedText
from specpair.speculation.drafting.lookups import Lookups
from specpair.speculation.drafting.node_selection import DraftStep
from specpair.speculation.drafting.tree import Proposal, TreeNode, draft_of
from specpair.speculation.policy.decisions import REPORT, ExpandPolicy, SendPolicy
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.drafting_state import TICK, BranchPolicy, DraftingState
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP, NOT_SOON, Mechanisms, RejectionPolicy, Schedule
from specpair.speculation.policy.verifier_timeline import InFlightDraft, VerifierTimeline

_RUNNERS_UP = 5  # choices after the first that a draft step predicts for a tree


class SpeculationController:
    """The drafter's decisions for one text, as the module describes. `opened` comes first."""

    def __init__(
        self,
        tokens: list[int],
        limit: int,
        ends: AbstractSet[int],
        estimates: Estimates,
        length: DraftLength,
        *,
        tree_limits: TreeLimits = TreeLimits(),
        width: int = 1,
        mechanisms: Mechanisms = Mechanisms(),
        lookups: Lookups | None = None,
        always_send: bool = False,
    ) -> None:
        """`tokens`: ids of the committed text, prompt included: the caller's list, to which committed tokens are
            appended.
        `limit`: most tokens of the text, prompt included.
        `estimates`: the controller updates them.
        `width`: most tree nodes that one draft step can expand.
        `lookups`: as for `CommittedText`.
        `always_send`: every drawn draft token goes into the next verify request, with the distribution it was drawn
            from. Dropping a drawn token for its value would bias the output.

        Raises ValueError for `always_send` outside lockstep.
        """
        if always_send and mechanisms != LOCKSTEP:
            raise ValueError("always_send works in lockstep only: turn overlap and self-continuation off")
        self._latencies = latencies = estimates.latencies
        self.text = CommittedText(tokens, ends, lookups, estimates.acceptance)
        self.known = self.text.known
        self.finished = False  # its own, as the server and the simulation have no `TextSession` that knows
        self.mechanisms, self._length, self._always_send = mechanisms, length, always_send
        self._timeline = VerifierTimeline(latencies, mechanisms.self_continue, len(self.known))
        self.drafts_in_flight = self._timeline.drafts_in_flight  # the timeline's list, which nothing else changes
        may_fork = mechanisms.trees and not always_send and length.fixed is None
        self._branches = BranchPolicy(
            self.text, length, latencies, self.drafts_in_flight, width if may_fork else 0, tree_limits
        )
        self._state = DraftingState(
            *(self.text, limit, latencies, length, mechanisms),
            timeline=self._timeline,
            branches=self._branches,
        )
        self._sending = SendPolicy(self._state, always_send=always_send)
        self._expanding = ExpandPolicy(self._state, width)
        # The answered draft, how many of its tokens were judged, and the seconds of the pass.
        self._answered: tuple[InFlightDraft, int, float] | None = None
        self._unlearnt = False  # whether anything was committed since the last `reflect`
        self._state.update_prospects()

    @property
    def schedule(self) -> Schedule:
        """The schedule with the best expected rate."""
        if self.mechanisms.self_continue and not self._length.best:
            return Schedule.SELF_CONTINUED
        return Schedule.OVERLAPPED if self._state.prospects.overlap else Schedule.LOCKSTEP

    @property
    def forced(self) -> int:
        """The number of last tokens that no pass has read."""
        return self._timeline.forced

    # Events.

    def opened(self, now: float, next_in: float = 0.0, forced: int = 0) -> None:
        """Take in that the session is open.

        `next_in`: seconds until the first draft, as the prefill request stated.
        `forced`: of the last tokens, those that no pass has read.
        """
        self._timeline.news(len(self.known), now, forced)
        self._timeline.expects(next_in, now)
        self._sending.sent(now)

    def drafted(self, proposals: Sequence[Proposal], read: int, now: float, onward: bool = False) -> float:
        """Take in the proposals of the draft step that ended, one for each node; return the seconds it took.

        `read`: as in `Expansion`.
        `onward`: the executor has begun the next draft step, behind the first proposal (`DraftStep.onward`).
        """
        step, self._state.step = self._state.step, None
        self._state.changed()
        assert step is not None
        took = now - step.began
        if read <= len(step.nodes):
            self._latencies.drafted(len(step.nodes), took)
        else:
            self._latencies.read(read - len(step.nodes), len(step.nodes), took)
        for node, proposal in zip(step.nodes, proposals, strict=True):
            self.text.grow(node, proposal)
        if self._state.prospects.outpaced:  # tokens come too late to be compared, and only times could change that
            self.text.untested = 0
        if onward:
            token, confidence = proposals[0][:2]
            behind = [child for child in step.nodes[0].children or () if child.token == token]
            step.nodes, step.tails = behind or [TreeNode(token, confidence, None)], [[*step.tails[0], token]]
            step.began = now
            self._state.step = step
        return took

    def answered(
        self,
        in_flight_draft: InFlightDraft,
        judged: int,
        queue: float,
        forward: float,
        now: float,
        shared: tuple[int, int] = (1, 0),
        forced: int = 0,
    ) -> None:
        """Take in a response to a verify request; the caller passes its tokens to `committed` next.

        `judged`: draft tokens that the target model ran over.
        `queue`, `forward`: seconds that the request waited for a verifier pass, and that the pass took.
        `shared`: how many sessions shared the pass, and their tokens in it, 0 if those are not known.
        `forced`: forced tokens that it read before the draft tokens.
        """
        waited = in_flight_draft is self.drafts_in_flight[0] and not self._timeline.self_continue
        self._timeline.arrived(in_flight_draft)
        self._state.changed()
        self._latencies.exchanged(now - in_flight_draft.sent_at, queue, forward)
        if forward > 0.0:
            self._latencies.verified(judged + forced, forward)
            self._latencies.shared(judged, *shared)
            if not judged:
                self._sending.balance.plain(forward)
            if waited:
                self._latencies.queued(queue)
        self._answered = (in_flight_draft, judged, forward) if len(in_flight_draft.draft) else None

    def self_continued(self, forward: float, forced: int = 0, step: SelfContinued = SelfContinued(1, 0)) -> None:
        """Take in a self-continuation step of `forward` seconds, which read `forced` forced tokens before its own; the
        caller passes its tokens to `committed`."""
        self._state.changed()
        self._latencies.self_continued(forward, forced, *step)
        self._latencies.shared(0)
        self._sending.balance.plain(forward / max(1, step.tokens))

    def committed(self, position: int, tokens: Sequence[int], finished: bool, now: float, forced: int = 0) -> list[int]:
        """Take in committed `tokens` from `position` on; return the new ones.

        `finished`: the text has ended.
        `forced`: of the last of `tokens`, those that no pass has read.
        """
        if position > len(self.known):  # a later message brings the tokens in between, and these again
            return []
        new = list(tokens[len(self.known) - position :])
        for at, token in enumerate(new, len(self.known)):
            self._timeline.committed(at, token)
        self.text.commit(new)
        if new or self._answered is not None:
            self._state.changed()
            self._timeline.news(len(self.known), now, forced if new else self.forced)
            if self._answered is not None:
                self._expect_next(*self._answered, now)
        self._unlearnt = self._unlearnt or bool(new)
        self._answered = None
        self.finished = self.finished or finished
        return new

    def reflect(self) -> bool:
        """Refit the acceptance model if tokens were committed since the last call; return whether it was refitted.

        A refit can change the decisions, so ask for actions again. Fitting takes longer than deciding, so call this
        when all actions that are due have been started.
        """
        if not self._unlearnt:
            return False
        self._unlearnt = False
        self._state.changed()
        self.text.learn()
        self._state.update_prospects()
        return True

    # Actions.

    def next_draft(self, now: float) -> InFlightDraft | None:
        """The verify request to send now; None: there is none to send. A returned one counts as in flight."""
        if self.finished or len(self.drafts_in_flight) >= self.mechanisms.in_flight:
            return None
        if self.drafts_in_flight and not self._state.prospects.overlap:
            return None
        if self._always_send and self._state.step is not None:
            return None
        self._expanding.look_up(now)
        policy, path = self._state.prospects.rejection_policy, self._sending.nodes_to_send(now)
        if path is None and self._sending.report_is_due(now):
            path, policy = [], RejectionPolicy(self_continue=True)  # since the time of the next draft is unknown
        if path is None:
            return None
        if not path:
            policy = policy._replace(next_in=NOT_SOON)
            if self._sending.must_be_sure:  # no draft is expected, so there is nothing to wait for
                policy = policy._replace(self_continue=True)
        if not self.mechanisms.self_continue:
            policy = policy._replace(self_continue=None)
        draft = Draft(len(self.known), draft_of(path, self._always_send))
        idle = self._timeline.idle(now) if self.mechanisms.self_continue else 0.0
        in_flight_draft = InFlightDraft(draft, now, policy, idle=idle)
        self._state.changed()
        for node in path:
            node.request = in_flight_draft
        self._timeline.sent(in_flight_draft)
        self._sending.sent(now)
        return in_flight_draft

    def next_step(self, now: float) -> DraftStep | None:
        """The draft step to begin now; None: there is none to begin. A returned one counts as under way."""
        if (step := self._state.step) is not None:
            step.until = len(step.tails[0]) + (not self.finished and self._expanding.continues_on_path(now))
            return None
        if self.finished or (self.drafts_in_flight and not self._state.prospects.overlap):
            return None
        self._expanding.look_up(now)
        nodes = self._expanding.nodes_to_expand(now)
        if not nodes:
            return None
        tails = [self.text.tree.tail(node) or [] for node in nodes]
        runners_up = _RUNNERS_UP if self._branches.pay else int(self.mechanisms.after_recovered)
        self._state.step = step = DraftStep(nodes, tails, len(self.known), runners_up, now)
        self._state.changed()
        step.until = len(tails[0]) + self._expanding.continues_on_path(now)
        return step

    def wake_at(self, now: float) -> float | None:
        """The time (s) at which to ask for actions again if no event comes before; None: only after an event."""
        if self.finished:
            return None
        moments = []
        if self._timeline.self_continue and not self.drafts_in_flight:
            moments.append(self._sending.sent_at + REPORT)
        elif self._state.step is not None and self.mechanisms.self_continue and not self.drafts_in_flight:
            moments.append(self._state.step_late_at())
        if not self._timeline.is_late(now):  # of a late verifier the soonest moment moves along with `now`
            moments.append(self._state.send_from(now))
        return min((at for at in moments if at > now + TICK), default=None)

    def _expect_next(self, in_flight_draft: InFlightDraft, judged: int, forward: float, now: float) -> None:
        """Tell the timeline when the verifier expects the next draft, and the balance the gain of this draft.

        After a fully accepted draft that is at once; after a rejection it is the time stated in the request.
        """
        draft = in_flight_draft.draft
        committed = self.known[draft.position : draft.position + len(draft)]
        if judged:
            gained = draft.accepted(committed) - draft.before(committed, judged)
            self._sending.balance.judged(max(0, gained) + 1, forward + in_flight_draft.idle)
        if draft.confirmed(committed):
            self._timeline.expects(0.0 if judged else None, now)
        elif judged:  # else the rejected draft was an earlier one, whose response set this
            self._timeline.expects(in_flight_draft.policy.next_in, now)
