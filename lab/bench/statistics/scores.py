"""How many answers of each side are right, where a case has reference answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from lab.bench.cases.answers import answer_in
from lab.bench.records import MeasuredRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How many answers of a side are right. `unread`: texts in which there is no answer to be found."""

    case: str
    side: str
    answers: int
    right: int
    unread: int

    @property
    def share(self) -> float | None:
        """right / answers; None: no answers."""
        return self.right / self.answers if self.answers else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreComparison:
    """Scores of two sides on the same questions.

    `only_side`, `only_baseline`: questions that one of them answered right and the other did not.
    `p`: the chance of so uneven a split if neither is better (McNemar's test, exact).
    """

    case: str
    side: str
    baseline: str
    pairs: int
    only_side: int
    only_baseline: int
    p: float


def is_right(request: MeasuredRequest) -> bool | None:
    """Whether a text ends in the number of the reference answer. None: one of the two is not known."""
    if request.text is None or request.expected is None or request.failure is not None:
        return None
    expected = answer_in(request.expected)
    return None if expected is None else answer_in(request.text) == expected


def score(case: str, side: str, requests: Sequence[MeasuredRequest]) -> Score | None:
    """Score the answers of a side in a case. None: no answer can be scored."""
    known = [(each, ruled) for each in requests if (ruled := is_right(each)) is not None]
    if not known:
        return None
    unread = sum(answer_in(each.text or "") is None for each, _ in known)
    right = sum(each for _, each in known)
    return Score(case=case, side=side, answers=len(known), right=right, unread=unread)


def compare_scores(
    case: str, side: str, baseline: str, ones: Sequence[MeasuredRequest], others: Sequence[MeasuredRequest]
) -> ScoreComparison | None:
    """Compare by the questions that both answered. None: there are none."""
    theirs = {each.pairing: right for each in others if (right := is_right(each)) is not None}
    pairs = [
        (right, theirs[each.pairing])
        for each in ones
        if (right := is_right(each)) is not None and each.pairing in theirs
    ]
    if not pairs:
        return None
    mine = sum(one and not other for one, other in pairs)
    other_alone = sum(other and not one for one, other in pairs)
    return ScoreComparison(
        case=case,
        side=side,
        baseline=baseline,
        pairs=len(pairs),
        only_side=mine,
        only_baseline=other_alone,
        p=sign_test(mine, other_alone),
    )


def sign_test(one: int, other: int) -> float:
    """The two-sided chance of a split as uneven as this if both outcomes are as likely."""
    total, fewer = one + other, min(one, other)
    return min(1.0, 2 * sum(comb(total, count) for count in range(fewer + 1)) / float(2**total))
