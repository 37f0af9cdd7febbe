"""Judge a draft: the one place that decides, by any strategy, which draft tokens are accepted, and explains why.

Rejection sampling accepts draft tokens drawn from q so that the committed tokens are samples of p. A draft token d is
accepted with probability min(1, p(d) / q(d)). Otherwise the recovered token is drawn from the residual, max(0, p - q)
normalised. Whatever q is, the committed token is a sample of p (Leviathan, Kalman, Matias, arXiv 2211.17192; Chen et
al., arXiv 2302.01318).

Several draft tokens for one position, as in a tree, are judged one after the other, each against the residual that the
rejected ones before it have left. Each needs the distribution that it was drawn from, given those before it: for draws
without replacement, q without their ids (Miao et al., SpecInfer, arXiv 2305.09781).

This needs the complete q, the same p that tokens are drawn from (after the filters), and independent noise for draft,
coin and residual (`gumbel.Purpose`).
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from specpair.speculation.acceptance.draft_probs import Weights, normalised
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy
from specpair.speculation.draft import DraftToken, children
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.distribution import draw, probabilities, reported_sampling
from specpair.speculation.sampling.gumbel import Purpose
from specpair.speculation.sampling.sampling import Row, Sampling, choose


def coin(seed: int, position: int, number: int = 0) -> float:
    """The uniform number in [0, 1) that decides whether the draft token at absolute `position` is accepted, of several
    the one with this `number`, from 0."""
    return gumbel.uniform(gumbel.row_key(seed, position, Purpose.COIN), number)


def decide(p: NDArray[np.float64], drafts: Sequence[tuple[int, Weights]], seed: int, position: int) -> int:
    """The token at absolute `position`: the first draft token that is accepted, else one drawn from the residual.

    `p`: the target's distribution, float64 of shape (vocab,).
    `drafts`: draft tokens for this position, in the order in which they were drawn, each with the distribution that it
        was drawn from.
    """
    for number, (draft, proposal) in enumerate(drafts):
        if number:
            p = p / p.sum()
        q = normalised(proposal)
        if coin(seed, position, number) * q[draft] < p[draft]:
            return draft
        p = residual(p, q)
    return draw(p, gumbel.uniform(gumbel.row_key(seed, position, Purpose.RESIDUAL)))


def residual(p: NDArray[np.float64], q: Weights) -> NDArray[np.float64]:
    """The residual of `p` after a draft token drawn from `q` is rejected, not normalised."""
    left = p.copy()
    for token, probability in q.items():
        left[token] = max(0.0, left[token] - probability)
    return left if left.any() else p  # p and q are equal but for rounding, so a sample of p serves as well


class Odds(NamedTuple):
    """The target's probabilities, 0 to 1, of the committed token and of the draft token judged at its position."""

    token: float
    draft: float


class Ruling(NamedTuple):
    """The ruling at one position. After an accepted draft token, a token that follows it in the draft is judged."""

    token: int
    accepted: bool  # whether `token` is a draft token, accepted
    odds: Odds | None = None  # for decisions, where the rule computed them
    row: int = 0  # index of the row that decided
    draft: int | None = None  # index of the draft token that was accepted, or else of the likeliest that was rejected


class IndexedRows(Protocol):
    """The rows of a pass, each as `Row`: a sequence, an array, or `ProcessedRows`."""

    def __getitem__(self, at: int, /) -> Row: ...


@dataclass(frozen=True, slots=True)
class Rule:
    """A strategy with its settings. `sampling`: the target's settings, from `effective_sampling`."""

    strategy: Strategy
    sampling: Sampling
    threshold: float = 0.0  # strategy `threshold`: a draft token of greater target probability (0 to 1) is accepted

    def weigh(self, row: Row, position: int, drafted: Sequence[DraftToken]) -> tuple[int, Odds | None]:
        """The token at absolute `position` by a strategy that uses probabilities, and the odds.

        `row`: the logits at `position`.
        `drafted`: those for this position. One without a distribution was chosen, which is q = 1. The odds are those of
            the one that is accepted, or else of the first; None where they explain nothing.
        """
        draft = drafted[0].token
        if self.strategy is Strategy.PROBABILISTIC:
            p = probabilities(row, self.sampling)
            drawn = [(each.token, each.probs or {each.token: 1.0}) for each in drafted]
            token = decide(p, drawn, self.sampling.seed, position)
            if self.sampling.greedy:  # the probabilities are 0 and 1, which explain nothing
                return token, None
        else:
            p = probabilities(row, reported_sampling(self.sampling))
            token = draft if p[draft] > self.threshold else choose(row, self.sampling, position)
        judged = token if any(each.token == token for each in drafted) else draft
        return token, Odds(float(p[token]), float(p[judged]))


def judge(
    drafts: Sequence[DraftToken], rows: IndexedRows, rule: Rule, position: int, ends: AbstractSet[int]
) -> list[Ruling]:
    """The rulings from absolute `position` on: the accepted draft tokens, then a recovered or bonus token.

    Where several draft tokens follow the same one, as in a tree, any of them may be accepted. By a drafter-invariant
    strategy the target's token does not depend on them; `probabilistic` judges one after the other; `threshold`, which
    would accept any that is likely enough, judges the first of them only.
    `rows`: len(drafts) + 1 rows of logits, each of shape (vocab,) or a TopLogits; row 0 follows the committed text, row
        i + 1 follows drafts[i]. Rows that follow a rejected draft token are ignored, because they continue a text that
        does not exist. Stops after an end token.
    `ends`: ids of the end tokens.
    """
    sampling, behind = rule.sampling, children(drafts)
    weighs, accepts = rule.strategy not in DRAFTER_INVARIANT, rule.strategy is not Strategy.GREEDY
    rulings: list[Ruling] = []
    at = -1  # index of the draft token that the next row follows
    while True:
        row, here, tried, odds = rows[at + 1], position + len(rulings), behind[at + 1], None
        if weighs and tried:
            token, odds = rule.weigh(row, here, [drafts[each] for each in tried])
        else:
            token = choose(row, sampling, here)
        # Under any rule: if the token equals a draft token, what follows that one continues the text.
        found = next((each for each in tried if drafts[each].token == token), None)
        accepted = accepts and found is not None
        judged = found if accepted else tried[0] if tried else None
        rulings.append(Ruling(token, accepted, odds, at + 1, judged))
        if found is None or not accepted or token in ends:
            return rulings
        at = found


Verdict = Literal["accepted", "rejected", "own"]
_PROBABILITY = {"ge": 0.0, "le": 1.0, "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class Decision:
    """Why one token was committed: its probabilities (all 0 to 1) and the verdict on the draft token.

    The target's probabilities are those after the session's filters. Where the target takes the argmax (temperature 0),
    they are those at temperature 1 without filters, because the filtered ones would be 0 and 1.
    """

    token: int = field(metadata={"ge": 0, "description": "The token that was committed."})
    p: float = field(metadata=_PROBABILITY | {"description": "The target's probability of the token."})
    draft: int | None = field(metadata={"ge": 0, "description": "The draft token that was judged at this position."})
    draft_p: float | None = field(
        metadata=_PROBABILITY | {"description": "The target's probability of the draft token."}
    )
    q: float | None = field(
        metadata=_PROBABILITY | {"description": "The drafter's probability of the draft token, where it was sent."}
    )
    # With probabilistic the coin, with coupled the uniform number behind the noise of `draft`.
    drawn: float | None = field(
        metadata=_PROBABILITY | {"description": "The random number that decided, where one was drawn."}
    )
    verdict: Verdict = field(
        metadata={"description": "On the draft token; own: no draft token was judged at this position."}
    )

    def body(self) -> dict[str, Any]:
        """The JSON object of replies."""
        return asdict(self)


def explain(
    rule: Rule, rulings: Sequence[Ruling], drafts: Sequence[DraftToken], rows: IndexedRows, position: int
) -> list[Decision]:
    """The decisions behind `rulings`. All other arguments are those for which `judge` returned them."""
    decisions, behind = [], children(drafts)
    for at, (token, accepted, odds, row, judged) in enumerate(rulings):
        if judged is None:
            p = _odds(rule, rows[row], token, token).token
            decisions.append(Decision(token, p, None, None, q=None, drawn=None, verdict="own"))
            continue
        draft, probs = drafts[judged].token, drafts[judged].probs
        p, draft_p = odds or _odds(rule, rows[row], token, draft)
        q = None if probs is None else normalised(probs)[draft]
        verdict: Verdict = "accepted" if accepted else "rejected"
        drawn, seed = None, rule.sampling.seed
        if rule.strategy is Strategy.PROBABILISTIC:
            drawn = coin(seed, position + at, behind[row].index(judged))
        elif rule.strategy is Strategy.COUPLED and not rule.sampling.greedy:
            drawn = gumbel.uniform(gumbel.row_key(seed, position + at), draft)
        decisions.append(Decision(token, p, draft, draft_p, q=q, drawn=drawn, verdict=verdict))
    return decisions


def _odds(rule: Rule, row: Row, token: int, draft: int) -> Odds:
    p = probabilities(row, reported_sampling(rule.sampling))
    return Odds(float(p[token]), float(p[draft]))
