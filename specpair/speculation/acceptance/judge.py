"""Judge a draft: the one place that decides, by any strategy, which draft tokens are accepted."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from specpair.speculation.acceptance import probabilistic
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy
from specpair.speculation.draft import DraftToken
from specpair.speculation.sampling.distribution import probabilities, reported_sampling
from specpair.speculation.sampling.sampling import Logits, Row, Sampling, choose


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

    def weigh(self, row: Row, position: int, drafted: DraftToken) -> tuple[int, Odds | None]:
        """The token at absolute `position` by a strategy that uses probabilities, and the odds.

        `row`: the logits at `position`. A draft token without a distribution was chosen, which is q = 1. The odds are
        None where they explain nothing.
        """
        draft = drafted.token
        if self.strategy is Strategy.PROBABILISTIC:
            p = probabilities(row, self.sampling)
            token = probabilistic.decide(p, draft, drafted.probs or {draft: 1.0}, self.sampling.seed, position)
            if self.sampling.greedy:  # the probabilities are 0 and 1, which explain nothing
                return token, None
        else:
            p = probabilities(row, reported_sampling(self.sampling))
            token = draft if p[draft] > self.threshold else choose(row, self.sampling, position)
        return token, Odds(float(p[token]), float(p[draft]))


def judge(
    drafts: Sequence[DraftToken],
    rows: Sequence[Row] | Logits,
    rule: Rule,
    position: int,
    ends: AbstractSet[int],
) -> list[Ruling]:
    """The rulings from absolute `position` on: the accepted draft tokens, then a recovered or bonus token.

    `rows`: len(drafts) + 1 rows of logits, each of shape (vocab,) or a TopLogits; row i follows drafts[:i]. Rows behind
        the first rejected draft token are ignored, because they continue a text that does not exist. Stops after an end
        token.
    `ends`: ids of the end tokens.
    """
    sampling = rule.sampling
    weighs, accepts = rule.strategy not in DRAFTER_INVARIANT, rule.strategy is not Strategy.GREEDY
    rulings: list[Ruling] = []
    for at, row in enumerate(rows):
        draft, odds = drafts[at] if at < len(drafts) else None, None
        if weighs and draft is not None:
            token, odds = rule.weigh(row, position + at, draft)
        else:
            token = choose(row, sampling, position + at)
        # Under any rule: if the token equals the draft token, the rest of the draft continues the text.
        accepted = accepts and draft is not None and token == draft.token
        rulings.append(Ruling(token, accepted, odds))
        if token in ends or not accepted:
            break
    return rulings
