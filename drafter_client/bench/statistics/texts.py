"""What sides wrote: whether equal requests got equal texts, and how many answers are right."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import comb

from drafter_client.bench.records import MeasuredRequest

_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")
_MARKED = (
    re.compile(r"####\s*(-?\$?\d[\d,]*(?:\.\d+)?)"),
    re.compile(r"\\boxed\{\s*(-?\\?\$?\d[\d,]*(?:\.\d+)?)"),
    re.compile(r"answer is:?\s*\**\s*(-?\$?\d[\d,]*(?:\.\d+)?)", re.IGNORECASE),
)
NEW_QUESTION = "\nQuestion:"  # a base model writes on with a question of its own after the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Equality:
    """How many requests of the same prompt and seed got the same text from both sides.

    `differing`: prompts of the others, by name, without repetition.
    """

    case: str
    side: str
    baseline: str
    pairs: int
    equal: int
    differing: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The same as a sentence."""
        return f"{self.equal} of {self.pairs} texts of {self.side} equal those of {self.baseline}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How many answers of a side are right. `unread`: texts in which there is no answer to be found."""

    case: str
    side: str
    kind: str
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


def equality(
    case: str, side: str, baseline: str, ones: Sequence[MeasuredRequest], others: Sequence[MeasuredRequest]
) -> Equality | None:
    """Compare texts by pairs of requests that did not fail. None: there is no pair with texts."""
    theirs = {each.pairing: each for each in others if each.text_hash is not None and each.failure is None}
    pairs = [
        (each, theirs[each.pairing])
        for each in ones
        if each.text_hash is not None and each.failure is None and each.pairing in theirs
    ]
    if not pairs:
        return None
    differing = {one.prompt for one, other in pairs if one.text_hash != other.text_hash}
    equal = sum(one.text_hash == other.text_hash for one, other in pairs)
    return Equality(
        case=case, side=side, baseline=baseline, pairs=len(pairs), equal=equal, differing=tuple(sorted(differing))
    )


def answer_in(text: str) -> Decimal | None:
    """The number that a solution of a GSM8K problem ends in: behind `####`, in `\\boxed{}`, behind "the answer is", or
    else the last number (as lm-evaluation-harness's strict and flexible matches do). None: there is no number."""
    text = text.partition(NEW_QUESTION)[0]
    for marked in _MARKED:
        if found := marked.findall(text):
            return _decimal(found[0])
    numbers = _NUMBER.findall(text)
    return _decimal(numbers[-1]) if numbers else None


def _decimal(number: str) -> Decimal | None:
    try:
        return Decimal(number.translate({ord(each): None for each in "$,\\"}))
    except InvalidOperation:
        return None


def is_right(request: MeasuredRequest) -> bool | None:
    """Whether the answer of a GSM8K problem is the expected one. None: the text or the expected answer is not known."""
    if request.text is None or request.expected is None or request.failure is not None:
        return None
    expected = answer_in(request.expected)
    return None if expected is None else answer_in(request.text) == expected


def score(case: str, side: str, kind: str, requests: Sequence[MeasuredRequest]) -> Score | None:
    """Score the answers of a case of the quality `gsm8k`. None: no answer can be scored."""
    known = [(each, ruled) for each in requests if (ruled := is_right(each)) is not None]
    if not known:
        return None
    unread = sum(answer_in(each.text or "") is None for each, _ in known)
    right = sum(each for _, each in known)
    return Score(case=case, side=side, kind=kind, answers=len(known), right=right, unread=unread)


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
