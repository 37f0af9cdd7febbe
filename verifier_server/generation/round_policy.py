"""Decides in a round of several texts which texts to draft for, and which draft tokens the target judges.

A round is some draft passes, each for several texts, and a pass of the target for all of them. A draft pass is one of
the draft model, or of the target's own head, which drafts the first few tokens only. Draft passes before the target's
keep all texts waiting, those that gain nothing by them, too. So a draft pass pays where the chances of its tokens,
added up over the texts, are worth more than the tokens that all texts would get in its time. That is decided again
before every draft pass, for either source, and also for two or three more of them, as the target's passes may have
steps in their cost. Draft passes of a model while the target's pass runs cost nothing, if the two share no device; they
guess what that pass brings.

Whether drafts pay is an estimate. So what rounds with drafts have brought is added up, in passes of the target alone:
in debt, nothing is drafted for some time, and for twice as long each time that this happens again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import NamedTuple

from specpair.speculation.draft import Draft, DraftSource
from specpair.speculation.drafting.acceptance_model import AcceptanceModel
from specpair.speculation.drafting.committed_text import CommittedText
from specpair.speculation.drafting.tree import Proposal, TreeNode, draft_of
from specpair.speculation.policy.cost_by_width import LEAST
from specpair.speculation.policy.draft_length import MAX_AUTO
from specpair.speculation.policy.timing import Mean
from verifier_server.engine.draft_credit import worth_judging
from verifier_server.generation.pass_costs import PassCosts

AHEAD = 3  # further draft tokens whose chances are estimated
_LIKELY = 0.1  # least chance of a node behind which is drafted while the target's pass runs
_BEYOND = 8  # draft tokens behind those that the running pass judges and the one that it adds, at most
_SHADOW, _SHADOW_SHARE = 8, 0.01  # tokens, and share of the time, for which a text is tried for which no draft pays
_UNTRIED = 32  # rounds after which a source that seemed worse drafts again, as its acceptance may have been bad luck
_HORIZON = 32  # rounds that what the draft model has to read before it drafts again is good for
_UNDRAFTED = 32  # rounds without drafts after which the times of draft passes are forgotten
_GAIN = 0.02  # tokens that a draft pass must bring beyond its cost, a text
# In passes: the debt of one text after which nothing is drafted (that of several evens out in part), the most that is
# saved up, and how long nothing is drafted, first and at most.
_DEBT, _SAVED, _REST, _LONGEST_REST = 2.0, 4.0, 32, 512


@dataclass(eq=False, slots=True)
class RoundText:
    """A text that is drafted and verified in rounds.

    `depths`: by source, before which draft token it drafts at the latest.
    """

    text: CommittedText
    acceptance: AcceptanceModel  # which it may share with other texts
    limit: int  # tokens of the text, prompt included, at most
    max_drafts: int  # that the target judges at once
    depths: Mapping[DraftSource, int] = field(default_factory=lambda: {DraftSource.MODEL: MAX_AUTO})
    path: Sequence[TreeNode] = ()  # the likeliest continuation that is drafted, as of the last `look`
    chances: Sequence[float] = (1.0,)  # [k]: that its first k tokens are accepted
    sent: Draft = field(init=False)  # what the target judges, or has judged last
    recent: float = 0.0  # of the acceptance model, for this text: how its last draft tokens fared
    drafts: bool = True  # whether drafting for it paid when that was last decided
    ahead_of_us: bool = False  # whether the engine has committed more than is known here, so that its head cannot help

    def __post_init__(self) -> None:
        self.sent = Draft(len(self.text.known))

    @property
    def room(self) -> int:
        """Draft tokens that can be judged next, at most. The last token of a text comes from the target."""
        return min(self.limit - len(self.text.known) - 1, self.max_drafts)

    def look(self, worth: float) -> None:
        """Update the draft by lookup. `worth`: a draft step's time as a probability, see `CommittedText.look_up`."""
        self.acceptance.recent = self.recent
        if self.text.lookups:
            self.text.look_up(self.room, (), always=not self.drafts, worth=worth)
        self.path = self.text.tree.main()[: max(0, self.room)]
        self.chances = self.text.chances(self.path)

    def ahead(self, source: DraftSource) -> list[float]:
        """As `chances`, with `AHEAD` further tokens of a source."""
        return self.text.chances(self.path, AHEAD, source)

    def typical(self, source: DraftSource) -> float:
        """Chance that the next token of a source is accepted, where its confidence is not known yet."""
        return self.acceptance.typical(source)

    def tip(self, source: DraftSource) -> TreeNode | None:
        """The node after which a source drafts next; None: it drafts no further."""
        node = self.text.tip(self.path)
        if len(self.path) >= min(self.room, self.depths.get(source, 0)) or not self.text.tree.is_open(node):
            return None
        if source is DraftSource.HEAD and self.ahead_of_us:
            return None
        return node

    def unread(self, source: DraftSource) -> int:
        """Roughly how many tokens a draft pass feeds for it, including tokens that the draft model has not read yet."""
        return 1 if self.path or source is DraftSource.HEAD else 1 + self.text.untested

    def draft(self, count: int) -> Draft:
        """The first `count` tokens of the path as a draft with their probabilities."""
        tokens = (
            each._replace(chance=both / before if before > 0.0 else 0.0)
            for each, (before, both) in zip(draft_of(self.path[:count], False), pairwise(self.chances), strict=False)
        )
        return Draft(len(self.text.known), tuple(tokens))

    def commit(self, position: int, tokens: Sequence[int]) -> list[int]:
        """Take in committed tokens from `position` on; returns those that are new."""
        self.ahead_of_us = False
        new = list(tokens[len(self.text.known) - position :])
        self.acceptance.recent = self.recent
        self.text.commit(new)
        self.recent = self.acceptance.recent
        return new

    def grow(self, node: TreeNode, proposal: Proposal, source: DraftSource) -> None:
        """Add the proposals of a source after `node`."""
        self.acceptance.recent = self.recent
        self.text.grow(node, proposal, source)


class ChosenDrafts(NamedTuple):
    """The texts of a draft pass, and what drafts in it.

    `steps`: how many tokens of each text, at most: a head drafts some without asking back.
    """

    texts: Sequence[RoundText]
    source: DraftSource
    steps: int = 1


class RoundPolicy:
    """Decides for all texts of one target and one draft model. Times in seconds."""

    def __init__(self, costs: PassCosts, overlaps: bool) -> None:
        """`overlaps`: whether a draft pass and one of the target can run at once without slowing each other."""
        self.costs, self.overlaps = costs, overlaps
        self._gain, self._balance = Mean(0.95), 0.0  # passes of the target alone that a round with drafts is worth
        self._rest, self._resting = _REST, 0  # rounds without drafts: how many next time, and still to come
        self._undrafted = 0  # rounds since the last one with drafts
        self._tried = 0  # rounds since a draft was made for a trial
        self._idle = dict.fromkeys(costs.sources, 0)  # rounds since a source drafted, by source
        self._again: DraftSource | None = None  # the source that this round tries again

    def rate(self, texts: Sequence[RoundText]) -> float:
        """Tokens per second of these texts: in the best rounds that draft, then verify, or in the latest if these are
        faster."""
        costs, count = self.costs, len(texts)
        if not costs.target_times:
            return 0.0
        best = max(1.0, self._gain.value) / costs.target(count)
        for source in costs.sources:
            typical, chance, brought, drafting = sum(each.typical(source) for each in texts) / count, 1.0, 1.0, 0.0
            for depth in range(1, max(each.depths.get(source, 0) for each in texts) + 1):
                chance *= typical
                brought += chance
                drafting += costs.draft(count, source)
                best = max(best, brought / (drafting + costs.target(count * (1 + depth))))
        return count * best

    def judged(self, texts: Sequence[RoundText]) -> list[int]:
        """How many draft tokens of each text the target should judge."""
        made = [[after / before for before, after in pairwise(each.chances)] for each in texts]
        if not self.costs.target_times:
            return [len(each) for each in made]
        return worth_judging(made, len(texts), len(texts), self.costs.target_times)

    def before_target(self, texts: Sequence[RoundText], judged: Sequence[int]) -> ChosenDrafts | None:
        """The draft pass that should run before the target pass; None: start the target pass.

        `judged`: as for `judged`.
        """
        if self._resting:
            return None
        chosen = self._worth(
            dict(zip(texts, judged, strict=True)), texts, len(texts) + sum(judged), 0.0, self.costs.sources
        )
        if chosen is not None:
            chosen = self._tried_again(chosen) or chosen
            self._idle[chosen.source] = 0
        for each in texts:
            each.drafts = (chosen is not None and each in chosen.texts) or len(each.path) > 0
        return chosen

    def _tried_again(self, chosen: ChosenDrafts) -> ChosenDrafts | None:
        """In place of the chosen draft pass, one of a source that has not drafted for long, at most `AHEAD` in a row;
        None: none is due."""
        sources = [self._again] if self._again else [each for each in self.costs.sources if each is not chosen.source]
        for source in sources:
            texts = [
                each
                for each in chosen.texts
                if len(each.path) < AHEAD
                and each.tip(source) is not None
                and all(node.source is source for node in each.path)
            ]
            waited = self._idle[source] * self.costs.target(len(chosen.texts))
            reading = self.costs.draft(sum(each.unread(source) for each in texts), source) if texts else inf
            if self._again or (self._idle[source] >= _UNTRIED and reading <= waited / _UNTRIED):
                self._again = source
                return ChosenDrafts(texts, source) if texts else None
        return None

    def during_target(self, texts: Sequence[RoundText], width: int, left: float) -> ChosenDrafts | None:
        """The draft pass that should run during the target pass. The target's head cannot run then.

        `width`: tokens of that pass.
        `left`: until that pass should end.
        """
        if DraftSource.MODEL not in self.costs.sources:
            return None
        model = DraftSource.MODEL
        trial = self._trial(texts, model)
        if trial:
            self._tried = 0
        if self._resting or not self.overlaps:
            return ChosenDrafts(trial, model) if trial else None
        price = self.rate(texts) * (self.costs.target(width + 1) - self.costs.target(width))
        likely = [
            each
            for each in texts
            if each.tip(model) is not None
            and each.chances[-1] >= _LIKELY
            and len(each.path) <= len(each.sent) + _BEYOND
            and (each.typical(model) > price or each in trial)
        ]
        if self.costs.draft(max(1, sum(each.unread(model) for each in likely)), model) <= left:
            return ChosenDrafts(likely, model) if likely else None
        deeper = {each: len(each.path) for each in likely if len(each.path) > len(each.sent)}
        return self._worth(deeper, texts, width, left, [model])

    def trial_due(self, texts: Sequence[RoundText]) -> bool:
        """Whether the head should draft one token although no draft pays, to measure its acceptance."""
        return DraftSource.HEAD in self.costs.sources and bool(self._trial(texts, DraftSource.HEAD))

    def trial(self, texts: Sequence[RoundText]) -> ChosenDrafts:
        """The draft pass for it, before the target pass."""
        tried, self._tried = self._trial(texts, DraftSource.HEAD), 0
        return ChosenDrafts(tried, DraftSource.HEAD)

    def _trial(self, texts: Sequence[RoundText], source: DraftSource) -> list[RoundText]:
        """The texts to draft one token for although no draft pays, to measure its acceptance."""
        untested = [each for each in texts if not each.path and each.tip(source) and each.text.untested >= _SHADOW]
        # It keeps all texts waiting, with what the draft model has to read for it.
        if untested and (source is DraftSource.HEAD or not self.overlaps):
            untested = [min(untested, key=lambda each: each.unread(source))]
            most = _SHADOW_SHARE * self._tried * self.costs.target(len(texts))
            if self.costs.draft(untested[0].unread(source), source) > most:
                return []
        return untested

    def _worth(
        self,
        deeper: Mapping[RoundText, int],
        texts: Sequence[RoundText],
        width: int,
        left: float,
        sources: Iterable[DraftSource],
    ) -> ChosenDrafts | None:
        """The texts of `deeper` whose draft pass gains more tokens than its delay costs all texts, with the source that
        gains most.

        `deeper`: how many draft tokens of each would be judged without it. Where a pass over more tokens takes a step
            in its time, drafts that were not worth it become so with those behind them.
        `texts`: all of them.
        `width`: tokens of the target's pass without it.
        `left`: seconds of it that delay nothing.
        `sources`: that may draft.
        """
        costs, rate = self.costs, self.rate(texts)
        best, chosen = _GAIN * len(texts), None
        for source in sources:
            ahead = [(each.ahead(source), each) for each in deeper if each.tip(source) is not None]
            # The chance of the next token counts, and of all before it.
            ahead.sort(key=lambda each: each[0][len(each[1].path) + 1], reverse=True)
            gains, unread, own, waiting = [0.0] * (AHEAD + 1), 0, AHEAD, 0
            for count, (chances, each) in enumerate(ahead, 1):
                made, unread, judged = len(each.path), unread + each.unread(source), deeper[each]
                waiting += made - judged
                own = min(own, each.depths[source] - made)  # further tokens of this source; the model goes on
                then = costs.draft(count, DraftSource.MODEL) if DraftSource.MODEL in sources else inf
                entry = max(0.0, costs.draft(unread, source) - costs.draft(count, source)) / _HORIZON
                for more in range(1, AHEAD + 1):
                    gains[more] += sum(chances[judged + 1 : made + 1 + more])
                    drafting = min(more, own) * costs.draft(count, source)
                    drafting += (more - own) * then if more > own else 0.0
                    seconds = max(0.0, drafting - left) + entry
                    seconds += costs.target(width + waiting + more * count) - costs.target(width)
                    if gains[more] - rate * seconds > best:
                        best = gains[more] - rate * seconds
                        steps = min(more, own) if source is DraftSource.HEAD else 1
                        chosen = ChosenDrafts([text for _, text in ahead[:count]], source, steps)
        return chosen

    def over(self, texts: int, tokens: int, seconds: float, drafted: bool) -> None:
        """Learn from a round of `texts` texts that committed `tokens` tokens in `seconds`, from end to end of
        rounds."""
        self._tried += 1
        self._idle, self._again = {source: rounds + 1 for source, rounds in self._idle.items()}, None
        if self._resting or not self.costs.target_times or seconds <= 0.0:
            self._resting = max(0, self._resting - 1)
            return
        plain, alone = self.costs.target(texts), tokens / texts
        self._gain.learn(alone * plain / max(LEAST, seconds))
        self._undrafted = 0 if drafted else self._undrafted + 1
        if self._undrafted == _UNDRAFTED:
            self.costs.forget_draft()
            self._undrafted = 0
        if not drafted:
            return
        self._balance = min(self._balance + alone - seconds / plain, _SAVED)
        if self._balance >= _SAVED:
            self._rest = _REST
        elif self._balance < -_DEBT / texts**0.5:
            self._balance, self._resting = 0.0, self._rest
            self._rest = min(2 * self._rest, _LONGEST_REST)
