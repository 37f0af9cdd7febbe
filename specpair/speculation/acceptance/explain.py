"""Explain why each token was committed: the numbers behind each ruling, for requests with `explain`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from specpair.speculation.acceptance.draft_probs import normalised
from specpair.speculation.acceptance.judge import Odds, Rule, Ruling, coin
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.draft import DraftToken, children
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.distribution import probabilities, reported_sampling
from specpair.speculation.sampling.sampling import Logits, Row

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
    rule: Rule,
    rulings: Sequence[Ruling],
    drafts: Sequence[DraftToken],
    rows: Sequence[Row] | Logits,
    position: int,
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
        drawn = _drawn(rule, draft, position + at, behind[row].index(judged))
        decisions.append(Decision(token, p, draft, draft_p, q=q, drawn=drawn, verdict=verdict))
    return decisions


def _odds(rule: Rule, row: Row, token: int, draft: int) -> Odds:
    p = probabilities(row, reported_sampling(rule.sampling))
    return Odds(float(p[token]), float(p[draft]))


def _drawn(rule: Rule, draft: int, position: int, number: int) -> float | None:
    """`number`: of the draft token among those that follow the same one."""
    seed = rule.sampling.seed
    if rule.strategy is Strategy.PROBABILISTIC:
        return coin(seed, position, number)
    if rule.strategy is Strategy.COUPLED and not rule.sampling.greedy:
        return gumbel.uniform(gumbel.row_key(seed, position), draft)
    return None
