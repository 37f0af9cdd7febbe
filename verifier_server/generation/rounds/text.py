"""One text of the rounds: what is drafted behind it, with which chances, and what of that is sent."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from specpair.speculation.draft import Draft
from specpair.speculation.drafts.acceptance_model import AcceptanceModel
from specpair.speculation.drafts.committed_text import CommittedText
from specpair.speculation.drafts.tree import Proposal, TreeNode, draft_of
from specpair.speculation.policy.draft_length import MAX_AUTO

AHEAD = 3  # further draft tokens whose chances are estimated


@dataclass(eq=False, slots=True)
class RoundText:
    """A text that is drafted for and judged in rounds."""

    text: CommittedText
    acceptance: AcceptanceModel  # which it may share with other texts
    limit: int  # tokens of the text, prompt included, at most
    max_drafts: int  # that the target judges at once
    path: Sequence[TreeNode] = ()  # the likeliest continuation that is drafted, as of the last `look`
    chances: Sequence[float] = (1.0,)  # [k]: that its first k tokens are accepted; `AHEAD` more than it has
    sent: Draft = field(init=False)  # what the target judges, or has judged last
    recent: float = 0.0  # of the acceptance model, for this text: how its last draft tokens fared
    drafts: bool = True  # whether drafting for it with the model paid when that was last decided

    def __post_init__(self) -> None:
        self.sent = Draft(len(self.text.known))

    @property
    def room(self) -> int:
        """Draft tokens that can be judged next, at most. The last token of a text comes from the target."""
        return min(self.limit - len(self.text.known) - 1, self.max_drafts)

    def look(self, worth: float) -> None:
        """See what is drafted by now. `worth`: of the time of a draft step, in chance: see `CommittedText.look_up`."""
        self.acceptance.recent = self.recent
        if self.text.lookups:
            self.text.look_up(self.room, (), always=not self.drafts, worth=worth)
        self.path = self.text.tree.main()[: max(0, self.room)]
        self.chances = self.text.chances(self.path, AHEAD)

    @property
    def tip(self) -> TreeNode | None:
        """The node behind which the draft model would draft next; None: it drafts no further."""
        node = self.text.tip(self.path)
        if len(self.path) >= min(self.room, MAX_AUTO) or not self.text.tree.is_open(node):
            return None
        return node

    @property
    def unread(self) -> int:
        """Roughly how many tokens a draft pass feeds for it: what came without draft tokens has to be read first."""
        return 1 if self.path else 1 + self.text.untested

    def draft(self, count: int) -> Draft:
        """The first `count` tokens of the path as a draft that tells their chances."""
        tokens = (
            each._replace(chance=both / before if before > 0.0 else 0.0)
            for each, (before, both) in zip(draft_of(self.path[:count], False), pairwise(self.chances), strict=False)
        )
        return Draft(len(self.text.known), tuple(tokens))

    def commit(self, position: int, tokens: Sequence[int]) -> list[int]:
        """Take in committed tokens from `position` on; returns those that are new."""
        new = list(tokens[len(self.text.known) - position :])
        self.acceptance.recent = self.recent
        self.text.commit(new)
        self.recent = self.acceptance.recent
        return new

    def grow(self, node: TreeNode, proposal: Proposal) -> None:
        """Take in what the draft model proposes behind `node`."""
        self.acceptance.recent = self.recent
        self.text.grow(node, proposal)
