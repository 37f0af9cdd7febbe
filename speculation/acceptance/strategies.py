"""Which drafts stand: the strategies, and the one loop that judges a guess by any of them."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from speculation.acceptance import rejection_sampling
from speculation.acceptance.draft_probs import Weights
from speculation.sampling.distribution import probabilities, told
from speculation.sampling.sampling import Logits, Row, Sampling, choose


class Strategy(StrEnum):
    """Rule by which a draft is accepted. Where it falls, a token of the target's takes its place."""

    # Iff it equals the token that the target draws with the shared noise (its argmax at temperature 0). Exact: a
    # sample of the target, and the same one whatever is drafted. Daliri, Musco, Suresh, arXiv 2408.07978.
    COUPLED = "coupled"
    # Iff it equals the target's argmax, whatever the temperature. Exact for temperature 0, which it amounts to.
    DETERMINISTIC = "deterministic"
    # Never: the target's own argmax, one token a guess. Exact as the former; for debugging.
    GREEDY = "greedy"
    # With probability min(1, p / q), else a token of the residual. Exact: a sample of the target, another one with
    # other drafts. Leviathan, Kalman, Matias, arXiv 2211.17192; Chen et al., arXiv 2302.01318.
    PROBABILISTIC = "probabilistic"
    # While the target gives it more than a threshold, or draws it with the shared noise. Lossy: the text leans to what
    # the drafter says. Compare typical acceptance in Medusa, arXiv 2401.10774.
    THRESHOLD = "threshold"

    @property
    def draws(self) -> bool:
        """Whether each draft is drawn from a distribution that is sent with it; a drawn one is always sent."""
        return self is Strategy.PROBABILISTIC

    @property
    def extends(self) -> bool:
        """Whether a draft that equals a committed token would have stood there, so that what follows may be judged.

        Where it would not (greedy), or need not have (a coin, a lossy threshold), a guess that begins before the end
        of the text is an old one, come late or again: more of it must not move the text on.
        """
        return self in (Strategy.COUPLED, Strategy.DETERMINISTIC)


# The text is the same whatever is drafted (the word is that of arXiv 2408.07978). With the others it depends on which
# of its tokens come from guesses, and would depend on timing if several guesses were under way, or none was waited for.
DRAFTER_INVARIANT = frozenset({Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY})


def effective_sampling(strategy: Strategy, sampling: Sampling) -> Sampling:
    """What the target samples with under `strategy`."""
    argmax = strategy in (Strategy.DETERMINISTIC, Strategy.GREEDY)
    return replace(sampling, temperature=0.0) if argmax else sampling


class Odds(NamedTuple):
    """What the target gives the token that stands at a place, and the draft that was judged there."""

    token: float
    draft: float


class Ruling(NamedTuple):
    """The token at a position, and whether it is the draft: then the next one is judged."""

    token: int
    stands: bool
    odds: Odds | None = None  # as told in decisions, where the rule worked them out


@dataclass(frozen=True, slots=True)
class Rule:
    """A strategy with its settings. `sampling` is what the target samples with (`effective_sampling`)."""

    strategy: Strategy
    sampling: Sampling
    threshold: float = 0.0  # for that strategy; a draft stands that is likelier

    def weigh(self, row: Row, position: int, draft: int, proposal: Weights | None) -> tuple[int, Odds | None]:
        """The token at `position`, given the row of logits there, by a strategy that weighs drafts; and the odds.

        `proposal`: what the draft was drawn from; None: it was not drawn, which is to say, from itself alone.
        """
        if self.strategy is Strategy.PROBABILISTIC:
            p = probabilities(row, self.sampling)
            token = rejection_sampling.decide(p, draft, proposal or {draft: 1.0}, self.sampling.seed, position)
            if self.sampling.greedy:  # these are 0 and 1
                return token, None
        else:
            p = probabilities(row, told(self.sampling))
            token = draft if p[draft] > self.threshold else choose(row, self.sampling, position)
        return token, Odds(float(p[token]), float(p[draft]))


def judge(
    drafts: Sequence[int],
    rows: Sequence[Row] | Logits,
    rule: Rule,
    position: int,
    ends: AbstractSet[int],
    proposals: Sequence[Weights] = (),
) -> list[Ruling]:
    """The tokens from `position` on: the drafts that stand, then one of the target's own.

    There are len(drafts) + 1 rows, logits of shape (vocab,) or their heads: row i follows drafts[:i]. Rows behind the
    first draft that falls are not looked at: they continue a text that does not exist. Stops after an end token.
    `proposals`: what each draft was drawn from, or nothing.
    """
    sampling = rule.sampling
    weighs, accepts = rule.strategy not in DRAFTER_INVARIANT, rule.strategy is not Strategy.GREEDY
    rulings: list[Ruling] = []
    for at, row in enumerate(rows):
        draft, odds = drafts[at] if at < len(drafts) else None, None
        if weighs and draft is not None:
            token, odds = rule.weigh(row, position + at, draft, proposals[at] if at < len(proposals) else None)
        else:
            token = choose(row, sampling, position + at)
        # Whatever the rule went by: where the token is the draft, what was drafted behind it goes on from the text.
        stands = accepts and token == draft
        rulings.append(Ruling(token, stands, odds))
        if token in ends or not stands:
            break
    return rulings


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return at
    return min(len(left), len(right))
