"""Where each committed token came from, as the verifier decides it and says it in every reply.

`marks_of` decides for the tokens of a judged draft; the scheduler marks those that it decodes without a request.
"""

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple


class TokenSource(Enum):
    """Every generated token has exactly one of these sources."""

    ACCEPTED = "accepted"  # a draft token that was accepted
    RECOVERED = "recovered"  # the target's token in place of a rejected draft token
    BONUS = "bonus"  # the target's token after a fully accepted draft, or without a draft
    TARGET_DECODED = "target_decoded"  # decoded by self-continuation before a draft for its position arrived
    FORCED = "forced"  # the only token that the text's grammar allowed there, so that no pass was needed

    @classmethod
    def of(cls, mark: str) -> "TokenSource":
        """The source that a mark says. Raises KeyError for the mark of a token of unknown source."""
        return _BY_LETTER[mark[0]]


# A mark is the source of one token, as text: the first letter of the source; behind it, a VAIN for each draft token
# that the same pass judged although it followed a rejected one, or the end of the text.
_BY_LETTER = {source.value[0]: source for source in TokenSource}
VAIN = "x"
SELF_CONTINUED = TokenSource.TARGET_DECODED.value[0]
FORCED = TokenSource.FORCED.value[0]  # follows what a pass has committed
ELSEWHERE = "-"  # the mark of a token that was not committed in this session: its source is not known
_MARK = f"[{''.join(_BY_LETTER)}{ELSEWHERE}]{VAIN}*"
PATTERN = f"^({_MARK})*$"  # of the marks of several tokens, one after the other


def split(marks: str) -> list[str]:
    """The marks of several tokens, one each. Raises ValueError if `marks` are none."""
    if re.fullmatch(PATTERN, marks) is None:
        raise ValueError(f"should be made of the letters {''.join(_BY_LETTER)}{ELSEWHERE}{VAIN}")
    return re.findall(_MARK, marks)


class Round(NamedTuple):
    """A pass of the target after the prefill's: tokens that it committed, and draft tokens that it judged."""

    start: int  # index of its first token among the tokens in question
    accepted: int  # draft tokens that were accepted, the first of its tokens
    judged: int  # draft tokens that were judged


def rounds(marks: Sequence[str]) -> Iterator[Round]:
    """The passes that committed tokens with these marks, one each, and judged drafts or were requested without.

    `marks`: from the beginning of a pass to the end of one. Self-continuation, forced tokens and tokens of other
    sessions are left out.
    """
    start, last = 0, len(marks) - 1
    for at, mark in enumerate(marks):
        source = _BY_LETTER.get(mark[0])
        if source in (None, TokenSource.TARGET_DECODED, TokenSource.FORCED):
            start = at + 1
        elif source is not TokenSource.ACCEPTED or len(mark) > 1 or at == last:
            judged = at - start + (source is not TokenSource.BONUS) + mark.count(VAIN)
            yield Round(start, at - start + (source is TokenSource.ACCEPTED), judged)
            start = at + 1


def passes(marks: Sequence[str]) -> Iterator[list[str]]:
    """The marks of each pass apart, in order, with those of forced tokens behind it; those of self-continuation one by
    one."""
    begun: list[str] = []
    for at, mark in enumerate(marks):
        begun.append(mark)
        ended = _BY_LETTER.get(mark[0]) is not TokenSource.ACCEPTED or len(mark) > 1
        if at == len(marks) - 1 or (ended and marks[at + 1] != FORCED):
            yield begun
            begun = []


def forced_before(marks: Sequence[str], end: int) -> int:
    """How many forced tokens stand one after the other right before index `end`. The pass that starts there reads
    them, too."""
    return next((end - at - 1 for at in reversed(range(end)) if marks[at] != FORCED), end)


def last_round(marks: Sequence[str]) -> Round | None:
    """The last of the `rounds` of these marks; None if there is none."""
    return next(iter([*rounds(marks)][-1:]), None)


def marks_of(accepted: Sequence[bool], judged: int, rejected: bool | None = None) -> list[str]:
    """The marks of the tokens of a pass over a draft of `judged` tokens.

    `accepted`: for each of them, whether it is an accepted draft token.
    `rejected`: whether the last one, if it is none, stands in place of draft tokens that were rejected; None: the draft
        was a chain, whose length tells.
    """
    if rejected is None:
        rejected = len(accepted) <= judged
    last = TokenSource.RECOVERED if rejected else TokenSource.BONUS
    marks = [(TokenSource.ACCEPTED if each else last).value[0] for each in accepted]
    marks[-1] += VAIN * (judged - len(marks) + (last is TokenSource.BONUS and not accepted[-1]))
    return marks
