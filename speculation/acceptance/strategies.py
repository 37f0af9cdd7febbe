"""The acceptance strategies, and the one loop that judges a draft by any of them."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from speculation.acceptance import rejection_sampling
from speculation.acceptance.draft_probs import Weights
from speculation.sampling.distribution import probabilities, reported_sampling
from speculation.sampling.sampling import Logits, Row, Sampling, choose


class Strategy(StrEnum):
    """Rule by which a draft token is accepted. A rejected one is replaced by a recovered token from the target."""

    # Accepted iff it equals the token that the target draws with the shared noise (the argmax at temperature 0). Exact:
    # the output is a sample of the target, and the same one for any drafts. Daliri, Musco, Suresh, arXiv 2408.07978.
    COUPLED = "coupled"
    # Accepted iff it equals the target's argmax, at any temperature. Exact for temperature 0, which it amounts to.
    DETERMINISTIC = "deterministic"
    # Never accepted: the target's argmax, one token a request. Exact like `deterministic`; for debugging.
    GREEDY = "greedy"
    # Accepted with probability min(1, p / q), else a token of the residual. Exact: the output is a sample of the
    # target, another one for other drafts. Leviathan, Kalman, Matias, arXiv 2211.17192; Chen et al., arXiv 2302.01318.
    PROBABILISTIC = "probabilistic"
    # Accepted if the target's probability of it exceeds a threshold, or the target draws it with the shared noise.
    # Lossy: the output is biased towards the drafter. Compare typical acceptance in Medusa, arXiv 2401.10774.
    THRESHOLD = "threshold"

    @property
    def draws(self) -> bool:
        """Whether draft tokens are drawn from distributions that are sent along. Each drawn token must be sent."""
        return self is Strategy.PROBABILISTIC

    @property
    def extends(self) -> bool:
        """Whether a draft token that equals a committed token counts as accepted, so that the rest is judged.

        With the others it would not (greedy), or not for certain (a coin, a lossy threshold). Then a draft that begins
        before the end of the text is late or repeated, and the rest of it must not extend the text.
        """
        return self in (Strategy.COUPLED, Strategy.DETERMINISTIC)


# The text is the same for any drafts (the term is from arXiv 2408.07978). With the other strategies it depends on which
# tokens were drafted. So with several drafts in flight, or with self-continuation, it would depend on timing.
DRAFTER_INVARIANT = frozenset({Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY})


def effective_sampling(strategy: Strategy, sampling: Sampling) -> Sampling:
    """The target's sampling settings under `strategy`: those of the session, or greedy where it takes the argmax."""
    argmax = strategy in (Strategy.DETERMINISTIC, Strategy.GREEDY)
    return replace(sampling, temperature=0.0) if argmax else sampling


class Odds(NamedTuple):
    """The target's probabilities, 0 to 1, of the committed token and of the draft token judged at its position."""

    token: float
    draft: float


class Ruling(NamedTuple):
    """The ruling at one position. After an accepted draft token the next one is judged."""

    token: int
    accepted: bool  # whether `token` is the draft token, accepted
    odds: Odds | None = None  # for decisions, where the rule computed them


@dataclass(frozen=True, slots=True)
class Rule:
    """A strategy with its settings. `sampling`: the target's settings, from `effective_sampling`."""

    strategy: Strategy
    sampling: Sampling
    threshold: float = 0.0  # strategy `threshold`: a draft token of greater target probability (0 to 1) is accepted

    def weigh(self, row: Row, position: int, draft: int, proposal: Weights | None) -> tuple[int, Odds | None]:
        """The token at absolute `position` by a strategy that uses probabilities, and the odds.

        `row`: the logits at `position`. `proposal`: the distribution that `draft` was drawn from; None: it was chosen,
        which is q = 1 for `draft`. The odds are None where they explain nothing.
        """
        if self.strategy is Strategy.PROBABILISTIC:
            p = probabilities(row, self.sampling)
            token = rejection_sampling.decide(p, draft, proposal or {draft: 1.0}, self.sampling.seed, position)
            if self.sampling.greedy:  # the probabilities are 0 and 1, which explain nothing
                return token, None
        else:
            p = probabilities(row, reported_sampling(self.sampling))
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
    """The rulings from absolute `position` on: the accepted draft tokens, then a recovered or bonus token.

    `rows`: len(drafts) + 1 rows of logits, each of shape (vocab,) or a TopLogits; row i follows drafts[:i]. Rows behind
    the first rejected draft token are ignored, because they continue a text that does not exist. Stops after an end
    token. `ends`: ids of the end tokens. `proposals`: the distribution that each draft token was drawn from, or empty.
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
        # Under any rule: if the token equals the draft token, the rest of the draft continues the text.
        accepted = accepts and token == draft
        rulings.append(Ruling(token, accepted, odds))
        if token in ends or not accepted:
            break
    return rulings


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Number of tokens in the longest common prefix."""
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return at
    return min(len(left), len(right))
