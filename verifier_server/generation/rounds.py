"""Rounds of server-side drafting: after each event, says which draft pass or target pass is due.

It has no engine, no thread and no clock: who runs the passes asks for the next one after every event. Seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specpair.speculation.draft import Draft, DraftSource
from specpair.speculation.drafting.acceptance_model import AcceptanceModel
from specpair.speculation.drafting.tree import Proposal, TreeNode
from verifier_server.engine.arrived_drafts import Answer
from verifier_server.generation.round_policy import ChosenDrafts, RoundPolicy, RoundText

_LATE = 0.5  # passes of the target after the first answers of a round, after which the next one waits for no others


@dataclass(frozen=True, slots=True)
class DraftPass:
    """A draft pass of a source: proposes tokens after each of `nodes`, one for each of `texts`."""

    source: DraftSource
    texts: Sequence[RoundText]
    nodes: Sequence[TreeNode]
    tails: Sequence[list[int]]  # the tokens from the committed text to each node
    steps: int = 1  # how many tokens behind each, at most


@dataclass(frozen=True, slots=True)
class TargetPass:
    """A pass of the target: `drafts` has one for each of `texts`."""

    texts: Sequence[RoundText]
    drafts: Sequence[Draft]
    plain: bool  # whether it judges no draft tokens, so that the next pass may begin before a request for it


class Rounds:
    """Rounds of texts that come and go."""

    def __init__(self, policy: RoundPolicy) -> None:
        self._policy, self._costs = policy, policy.costs
        self._texts: dict[RoundText, None] = {}
        self._judging: set[RoundText] = set()  # those with a request that is not answered
        self._awaited: set[RoundText] = set()  # of these, those for which the next round waits
        self._unlearnt: dict[AcceptanceModel, None] = {}  # which have not learnt from the last outcomes
        self._drafting: DraftPass | None = None
        self._width, self._began, self._drafted = 0, 0.0, False  # of the target's last pass: tokens, time, any drafts
        self._reading = 0.0  # of this round, in which the texts waited for the draft model to read
        self._plain = False  # whether the target's last pass was
        self._timed = True  # whether no pass of the other model has slowed the passes that run
        self._brought, self._undisturbed = 0, True  # tokens of this round, and whether only these texts had its pass
        self._answered_at: float | None = None  # when the first answers of the round came; None: none has
        self._round_began: float | None = None  # when the last round was over; None: texts have come since

    def join(self, text: RoundText) -> None:
        """Add a text to the next rounds."""
        self._texts[text] = None
        self._round_began = None

    def leave(self, text: RoundText) -> None:
        """Forget a text."""
        self._texts.pop(text, None)
        self._judging.discard(text)
        self._awaited.discard(text)
        self._round_began = None

    def drafted(self, proposals: Sequence[Proposal | None], read: int, began: float, now: float) -> None:
        """Apply the proposals of the finished draft pass, one for each node; None: its text was not in step.

        `read`: tokens that it read.
        """
        ran, self._drafting = self._drafting, None
        assert ran is not None
        if self._timed:
            steps = max((each.length for each in proposals if each is not None), default=1)
            self._costs.draft_ran(read, (now - began) / steps, ran.source)
        if not self._awaited:
            usual = self._costs.draft(2 * len(ran.nodes), ran.source)
            self._reading += max(0.0, self._costs.draft(read, ran.source) - usual)
        for text, node, proposal in zip(ran.texts, ran.nodes, proposals, strict=True):
            text.ahead_of_us = text.ahead_of_us or proposal is None
            while proposal is not None:
                text.grow(node, proposal, ran.source)
                first = next(iter(node.children or ()), None)
                if first is None or first.token != proposal.token:  # a looked-up token is likelier
                    break
                node, proposal = first, proposal.behind

    def failed(self) -> None:
        """Note that the draft pass failed. Its caller removes the texts."""
        self._drafting = None

    def answered(self, text: RoundText, answer: Answer, now: float) -> list[int]:
        """Apply an answer of the target; returns the new tokens."""
        new = text.commit(answer.position, answer.tokens)
        self._unlearnt[text.acceptance] = None
        self._brought += len(new)
        self._undisturbed = self._undisturbed and answer.sessions <= len(self._texts)
        self._judging.discard(text)
        if text in self._awaited:  # else it is late, or of a pass that nobody had to ask for
            self._awaited.discard(text)
            if self._answered_at is None and self._undisturbed and self._timed and answer.forward:
                self._costs.target_ran(self._width, answer.forward)
            self._answered_at = now
            if not self._awaited:
                self._over(now)
        return new

    def _over(self, now: float) -> None:
        """End the round."""
        if self._round_began is not None and self._undisturbed:
            seconds = now - self._round_began - self._reading
            self._policy.over(len(self._texts), self._brought, seconds, self._drafted)
        self._round_began, self._brought, self._undisturbed, self._reading = now, 0, True, 0.0
        self._awaited, self._answered_at, self._timed = set(), None, self._drafting is None or self._timed

    @property
    def wake_at(self) -> float | None:
        """When to call `next` again without an event; None: only after an event."""
        if self._answered_at is None or self._drafting is not None:
            return None
        return self._answered_at + _LATE * self._costs.target(1)

    def next(self, now: float) -> DraftPass | TargetPass | None:
        """The pass to begin now, which counts as begun; None: none is due."""
        wake = self.wake_at
        if wake is not None and now >= wake:
            self._over(now)
        if self._drafting is not None or self._answered_at is not None:
            return None
        if self._awaited:
            return self._draft_during_target(now)
        ready = [each for each in self._texts if each not in self._judging]
        return self._round(ready, now) if ready else None

    def _draft_during_target(self, now: float) -> DraftPass | None:
        """The draft pass to run during the target pass. First learns from the last round."""
        for acceptance in self._unlearnt:
            acceptance.fit()
        self._unlearnt = {}
        texts = [each for each in self._texts if each in self._awaited]
        self._look(texts)
        left = max(0.0, self._began + self._costs.target(self._width) - now)
        draft = self._begin(self._policy.during_target(texts, self._width, left))
        self._timed = self._timed and (draft is None or self._policy.overlaps)
        return draft

    def _round(self, texts: Sequence[RoundText], now: float) -> DraftPass | TargetPass:
        self._look(texts)
        judged = self._policy.judged(texts)
        chosen, plain = self._policy.before_target(texts, judged), not any(judged)
        trial = chosen is None and plain and self._policy.trial_due(texts)
        if self._plain and (trial or (chosen is not None and chosen.source is DraftSource.HEAD)):
            # The head drafts behind what is committed, and the target has gone on. It waits from this pass on.
            chosen, plain = None, False
        elif trial:
            chosen = self._policy.trial(texts)
        draft = self._begin(chosen)
        if draft is not None:
            self._plain = False
            return draft
        drafts = [each.draft(count) for each, count in zip(texts, judged, strict=True)]
        for text, sent in zip(texts, drafts, strict=True):
            text.sent = sent
        self._awaited, self._timed = set(texts), True
        self._judging |= self._awaited
        self._width, self._began, self._drafted = len(texts) + sum(judged), now, any(judged)
        self._plain = plain
        return TargetPass(texts, drafts, plain)

    def _look(self, texts: Sequence[RoundText]) -> None:
        target = self._costs.target(len(texts))
        step = min(self._costs.draft(len(texts), source) for source in self._costs.sources)
        worth = step / target if self._costs.target_times else 0.0
        for each in texts:
            each.look(worth)

    def _begin(self, chosen: ChosenDrafts | None) -> DraftPass | None:
        if chosen is None:
            return None
        texts, source, steps = chosen
        nodes = [node for each in texts if (node := each.tip(source)) is not None]
        tails = [each.text.tree.tail(node) or [] for each, node in zip(texts, nodes, strict=True)]
        self._drafting = DraftPass(source, texts, nodes, tails, steps)
        return self._drafting
