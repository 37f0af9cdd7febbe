"""Counts the judged draft tokens of a text. Verifier and drafter count the same rounds, so their counts agree."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Self

from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.draft import Draft, DraftSource, DraftToken, children


class JudgedRound(NamedTuple):
    """A round: how many draft tokens were judged, the first `accepted` of which were accepted.

    `tokens`: the judged draft tokens; empty: not known. Of a tree, too, the accepted ones come first, and then the one
        that a recovered token replaces.
    `request`: what they were sent with; None: not known.
    `bonus`: whether no draft token is replaced, although some were not accepted, as in a tree.
    """

    judged: int
    accepted: int
    tokens: tuple[DraftToken, ...] = ()
    request: Hashable = None
    bonus: bool = False

    @classmethod
    def of(cls, draft: Draft, path: Sequence[int], request: Hashable = None) -> Self:
        """A round that judged a draft, of which the tokens with the indices in `path` were accepted."""
        behind = children(draft.tokens)[path[-1] + 1 if path else 0]
        first = [*path, *behind[:1]]
        order = [*first, *(each for each in range(len(draft)) if each not in first)]
        tokens = tuple(draft.tokens[each] for each in order)
        return cls(len(draft), len(path), tokens, request, not behind and len(path) < len(draft))

    def drafted_by(self, source: DraftSource) -> Self:
        """The round of a drafter that is `source` itself: its tokens are marked so, in place of a draft model's."""
        own = DraftSource.MODEL
        tokens = (token._replace(source=source) if token.source is own else token for token in self.tokens)
        return self._replace(tokens=tuple(tokens))


class JudgedDraft(NamedTuple):
    """A draft token that was accepted or replaced by a committed token. `request`: the request that carried it."""

    token: DraftToken
    request: Hashable


def judged_drafts(sources: Sequence[TokenSource], rounds: Iterable[JudgedRound]) -> list[JudgedDraft | None]:
    """For each committed token, the draft token that was accepted or that it replaces. None: there was none, or it is
    unknown.

    `rounds`: those that committed the tokens.
    """
    judged = list[tuple[TokenSource, JudgedDraft | None]]()
    for each in rounds:
        tokens = [JudgedDraft(token, each.request) for token in each.tokens]
        known: list[JudgedDraft | None] = [*tokens] or [None] * each.judged
        kinds = [TokenSource.ACCEPTED] * each.accepted + [TokenSource.RECOVERED] * (not each.bonus)
        judged += zip(kinds, known, strict=False)
    found, left = list[JudgedDraft | None](), iter(judged)
    for source in sources:
        was_judged = source in (TokenSource.ACCEPTED, TokenSource.RECOVERED)
        expected, drafted = next(left, (source, None)) if was_judged else (source, None)
        if expected is not source:  # tokens of a round that is not among these
            left, drafted = iter(()), None
        found.append(drafted)
    return found


def draft_sources(sources: Sequence[TokenSource], rounds: Iterable[JudgedRound]) -> list[DraftSource | None]:
    """The sources of the draft tokens that `judged_drafts` finds."""
    return [None if each is None else each.token.source for each in judged_drafts(sources, rounds)]


@dataclass(slots=True)
class RoundCounts:
    """Counts of the rounds of a text."""

    rounds: int = 0  # passes of the target that were asked for, after the one that read the prompt
    drafted: int = 0  # draft tokens that the target judged
    accepted: int = 0  # of the judged draft tokens, those accepted
    drafts_judged: int = 0  # drafts of which the target judged at least one token
    longest_draft: int = 0  # the most draft tokens that the target judged in one round
    accepted_per_position: list[int] = field(default_factory=list)  # accepted ones by how many came before in the round
    looked_up: int = 0  # of the judged draft tokens, those looked up, in the text, the prediction or the user's files
    looked_up_accepted: int = 0  # of these, those accepted
    by_head: int = 0  # of the judged draft tokens, those of the target's own head
    by_head_accepted: int = 0  # of these, those accepted
    prediction_accepted: int = 0  # draft tokens from the client's prediction that were accepted
    prediction_rejected: int = 0  # and those that were rejected
    from_grammar: int = 0  # accepted draft tokens that the grammar determined
    outage_time: float = 0.0  # seconds that the text waited for a verifier that was away

    def count(self, each: JudgedRound) -> None:
        """Count a round."""
        judged, accepted, tokens = each[:3]
        looked_up = [token.source.looked_up for token in tokens]
        by_head = [token.source is DraftSource.HEAD for token in tokens]
        predicted = [token.source is DraftSource.PREDICTION for token in tokens]
        self.rounds += 1
        self.drafted += judged
        self.accepted += accepted
        self.drafts_judged += judged > 0
        self.longest_draft = max(self.longest_draft, judged)
        self.looked_up += sum(looked_up)
        self.looked_up_accepted += sum(looked_up[:accepted])
        self.by_head += sum(by_head)
        self.by_head_accepted += sum(by_head[:accepted])
        self.prediction_accepted += sum(predicted[:accepted])
        self.prediction_rejected += sum(predicted[accepted:])
        self.from_grammar += sum(token.source is DraftSource.GRAMMAR for token in tokens[:accepted])
        self.accepted_per_position += [0] * (accepted - len(self.accepted_per_position))
        for at in range(accepted):
            self.accepted_per_position[at] += 1

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted, 0 to 1; None before a draft token was judged."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def acceptance_histogram(self) -> list[int]:
        """How many judged drafts had 0, 1, ... accepted tokens, up to `longest_draft`."""
        accepted = list(self.accepted_per_position)
        at_least = [self.drafts_judged, *accepted, *[0] * (self.longest_draft + 1 - len(accepted))]
        return [more - fewer for more, fewer in pairwise(at_least)]

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens per round, 1 + accepted / rounds; None before the first round."""
        return 1 + self.accepted / self.rounds if self.rounds else None
