"""Which drafts stand: the strategies, and the one loop that judges a guess by any of them."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from speculation import residual
from speculation.distribution import probabilities, told
from speculation.proposal import Weights
from speculation.sampling import Logits, Row, Sampling, choose


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
    # While the target gives it more than a threshold. Lossy: the text leans to what the drafter says. Compare typical
    # acceptance in Medusa, arXiv 2401.10774.
    THRESHOLD = "threshold"

    @property
    def draws(self) -> bool:
        """Whether each draft is drawn from a distribution that is sent with it; a drawn one is always sent."""
        return self is Strategy.PROBABILISTIC


# The text is the same whatever is drafted (the word is that of arXiv 2408.07978). With the others it depends on which
# of its tokens come from guesses, and would depend on timing if several guesses were under way, or none was waited for.
DRAFTER_INVARIANT = frozenset({Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY})


def effective_sampling(strategy: Strategy, sampling: Sampling) -> Sampling:
    """What the target samples with under `strategy`."""
    argmax = strategy in (Strategy.DETERMINISTIC, Strategy.GREEDY)
    return replace(sampling, temperature=0.0) if argmax else sampling


class Ruling(NamedTuple):
    """The token at a position, and whether it is there because the draft stands."""

    token: int
    stands: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """A strategy with its settings. `sampling` is what the target samples with (`effective_sampling`)."""

    strategy: Strategy
    sampling: Sampling
    threshold: float = 0.0  # for that strategy; a draft stands that is likelier

    def decide(self, row: Row, position: int, draft: int | None, proposal: Weights | None) -> Ruling:
        """What becomes of `draft` at `position`, given the row of logits there; without one, the target's own token.

        `proposal`: what it was drawn from; None: it was not drawn, which is to say, from itself alone.
        """
        if draft is not None and self.strategy is Strategy.PROBABILISTIC:
            p = probabilities(row, self.sampling)
            return Ruling(*residual.decide(p, draft, proposal or {draft: 1.0}, self.sampling.seed, position))
        if draft is not None and self.strategy is Strategy.THRESHOLD:
            if probabilities(row, told(self.sampling))[draft] > self.threshold:
                return Ruling(draft, True)
            return Ruling(choose(row, self.sampling, position), False)
        token = choose(row, self.sampling, position)
        return Ruling(token, token == draft and self.strategy is not Strategy.GREEDY)


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
    rulings: list[Ruling] = []
    for at, row in enumerate(rows):
        draft = drafts[at] if at < len(drafts) else None
        ruling = rule.decide(row, position + at, draft, proposals[at] if at < len(proposals) else None)
        rulings.append(ruling)
        if ruling.token in ends or not ruling.stands:
            break
    return rulings


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return at
    return min(len(left), len(right))
