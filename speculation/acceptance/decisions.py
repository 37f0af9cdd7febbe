"""Why a token is where it is: the numbers behind each ruling, for those who asked to see them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from speculation.acceptance import rejection_sampling
from speculation.acceptance.draft_probs import Weights, normalised
from speculation.acceptance.strategies import Odds, Rule, Ruling, Strategy
from speculation.sampling import gumbel
from speculation.sampling.distribution import probabilities, told
from speculation.sampling.sampling import Logits, Row

Verdict = Literal["accepted", "rejected", "own"]
VERDICTS: tuple[Verdict, ...] = ("accepted", "rejected", "own")


@dataclass(frozen=True, slots=True)
class Decision:
    """One committed token.

    Probabilities of the target are those after the session's filters; where it takes the argmax (temperature 0), those
    at temperature 1 without filters, since the others would be 0 and 1.
    """

    token: int
    p: float  # the target's probability of it
    draft: int | None  # the draft that was judged there
    draft_p: float | None  # the target's probability of that
    q: float | None  # the probability with which it was drafted, where that was sent
    drawn: float | None  # probabilistic: the coin; coupled: the number behind the noise of the draft; in [0, 1)
    verdict: Verdict  # on the draft; own: there was none

    def body(self) -> dict[str, Any]:
        """As replies carry it."""
        return asdict(self)


def explain(
    rule: Rule,
    rulings: Sequence[Ruling],
    drafts: Sequence[int],
    rows: Sequence[Row] | Logits,
    position: int,
    proposals: Sequence[Weights] = (),
) -> list[Decision]:
    """What was behind `rulings`, which `acceptance.judge` made of the same drafts and rows."""
    decisions = []
    for at, (token, stands, odds) in enumerate(rulings):
        if at >= len(drafts):
            decisions.append(Decision(token, _odds(rule, rows[at], token, token).token, None, None, None, None, "own"))
            continue
        draft = drafts[at]
        p, draft_p = odds or _odds(rule, rows[at], token, draft)
        q = normalised(proposals[at])[draft] if at < len(proposals) else None
        verdict: Verdict = "accepted" if stands else "rejected"
        decisions.append(Decision(token, p, draft, draft_p, q, _drawn(rule, draft, position + at), verdict))
    return decisions


def _odds(rule: Rule, row: Row, token: int, draft: int) -> Odds:
    p = probabilities(row, told(rule.sampling))
    return Odds(float(p[token]), float(p[draft]))


def _drawn(rule: Rule, draft: int, position: int) -> float | None:
    seed = rule.sampling.seed
    if rule.strategy is Strategy.PROBABILISTIC:
        return rejection_sampling.coin(seed, position)
    if rule.strategy is Strategy.COUPLED and not rule.sampling.greedy:
        return gumbel.uniform(gumbel.row_key(seed, position), draft)
    return None
