"""Details of committed tokens besides their ids: source, reason and log probability of each.

`marks_of` decides for the tokens of a judged draft; the scheduler marks those that it decodes without a request. On the
wire a mark is text: the first letter of the source, and an x for each draft token that was judged in vain. `split`
reads the marks of a reply, once, and `joined` writes them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, Protocol, Self

from specpair.speculation.acceptance.judge import Decision
from specpair.speculation.sampling.distribution import TokenLogprobs
from specpair.speculation.text_options import TextSpec


class TokenSource(Enum):
    """Every generated token has exactly one of these sources."""

    ACCEPTED = "accepted"  # a draft token that was accepted
    RECOVERED = "recovered"  # the target's token in place of a rejected draft token
    BONUS = "bonus"  # the target's token after a fully accepted draft, or without a draft
    TARGET_DECODED = "target_decoded"  # decoded by self-continuation before a draft for its position arrived
    HEAD = "head"  # predicted by the target's own head, and accepted, in self-continuation
    FORCED = "forced"  # the only token that the text's grammar allowed there, so that no pass was needed

    @property
    def letter(self) -> str:
        """The source on the wire."""
        return self.value[0]


class TokenMark(NamedTuple):
    """The source of one token, and whether its pass committed further tokens behind it.

    `source`: None: not known, as the token was not committed in this session.
    `vain`: draft tokens that the same pass judged although they followed a rejected one, or the end of the text.
    """

    source: TokenSource | None
    vain: int = 0

    @property
    def ends_pass(self) -> bool:
        """Whether the pass, or what needed none, committed no further token by a draft."""
        return self.source not in (TokenSource.ACCEPTED, TokenSource.HEAD) or self.vain > 0

    @property
    def self_continued(self) -> bool:
        """Whether a self-continuation step brought the token."""
        return self.source in (TokenSource.TARGET_DECODED, TokenSource.HEAD)

    def __str__(self) -> str:
        """The mark in the form of the wire."""
        return (_UNKNOWN if self.source is None else self.source.letter) + _VAIN * self.vain


SELF_CONTINUED = TokenMark(TokenSource.TARGET_DECODED)
_BY_HEAD = TokenMark(TokenSource.HEAD)
FORCED = TokenMark(TokenSource.FORCED)  # follows what a pass has committed
ELSEWHERE = TokenMark(None)  # of a token that was not committed in this session
_ACCEPTED, _RECOVERED, _BONUS = map(TokenMark, (TokenSource.ACCEPTED, TokenSource.RECOVERED, TokenSource.BONUS))
_BY_LETTER = {source.letter: source for source in TokenSource}
_UNKNOWN, _VAIN = "-", "x"
_MARK = f"[{''.join(_BY_LETTER)}{_UNKNOWN}]{_VAIN}*"
PATTERN = f"^({_MARK})*$"  # of the marks of several tokens, one after the other


def split(marks: str) -> list[TokenMark]:
    """The marks of several tokens in the form of the wire. Raises ValueError for invalid `marks`."""
    if re.fullmatch(PATTERN, marks) is None:
        raise ValueError(f"should be made of the letters {''.join(_BY_LETTER)}{_UNKNOWN}{_VAIN}")
    return [_read(each) for each in re.findall(_MARK, marks)]


@lru_cache(256)
def _read(mark: str) -> TokenMark:
    return TokenMark(_BY_LETTER.get(mark[0]), len(mark) - 1)


def joined(marks: Iterable[TokenMark]) -> str:
    """The marks of several tokens for the wire."""
    return "".join(map(str, marks))


class Round(NamedTuple):
    """A pass of the target after the prefill's: tokens that it committed, and draft tokens that it judged."""

    start: int  # index of its first token among the tokens in question
    accepted: int  # draft tokens that were accepted, the first of its tokens
    judged: int  # draft tokens that were judged


def rounds(marks: Sequence[TokenMark]) -> Iterator[Round]:
    """The passes that committed tokens with these marks: those that judged drafts, or were requested without a draft.

    `marks`: from the beginning of a pass to the end of one. Self-continuation, forced tokens and tokens of other
    sessions are left out.
    """
    start, last = 0, len(marks) - 1
    for at, mark in enumerate(marks):
        if mark.source in (None, TokenSource.FORCED) or mark.self_continued:
            start = at + 1
        elif mark.ends_pass or at == last:
            judged = at - start + (mark.source is not TokenSource.BONUS) + mark.vain
            yield Round(start, at - start + (mark.source is TokenSource.ACCEPTED), judged)
            start = at + 1


def passes(marks: Sequence[TokenMark]) -> Iterator[list[TokenMark]]:
    """The marks of each pass apart, in order, with those of forced tokens behind it."""
    begun: list[TokenMark] = []
    for at, mark in enumerate(marks):
        begun.append(mark)
        if at == len(marks) - 1 or (mark.ends_pass and marks[at + 1] != FORCED):
            yield begun
            begun = []


def forced_before(marks: Sequence[TokenMark], end: int) -> int:
    """The number of consecutive forced tokens right before index `end`. The pass that starts there also reads them."""
    return next((end - at - 1 for at in reversed(range(end)) if marks[at] != FORCED), end)


def last_round(marks: Sequence[TokenMark]) -> Round | None:
    """The last of the `rounds` of these marks; None if there is none."""
    found = [*rounds(marks)]
    return found[-1] if found else None


def marks_of(accepted: Sequence[bool], judged: int, rejected: bool | None = None) -> list[TokenMark]:
    """The marks of the tokens of a pass over a draft of `judged` tokens.

    `accepted`: for each of them, whether it is an accepted draft token.
    `rejected`: whether the last one, if it is none, stands in place of draft tokens that were rejected; None: the draft
        was a chain, whose length tells.
    """
    last = _RECOVERED if (len(accepted) <= judged if rejected is None else rejected) else _BONUS
    marks = [_ACCEPTED if each else last for each in accepted]
    vain = judged - len(marks) + (last is _BONUS and not accepted[-1])
    if vain > 0:
        marks[-1] = TokenMark(marks[-1].source, vain)
    return marks


def self_continued(accepted: Sequence[bool], judged: int) -> list[TokenMark]:
    """The marks of the tokens of a self-continuation step, of which the head had predicted `judged`. `accepted`: as for
    `marks_of`."""
    marks = [_BY_HEAD if each else SELF_CONTINUED for each in accepted]
    vain = judged - sum(accepted)
    if vain > 0:
        marks[-1] = TokenMark(marks[-1].source, vain)
    return marks


class SelfContinued(NamedTuple):
    """A self-continuation step: tokens that it committed, and those that the head had predicted for it."""

    tokens: int
    judged: int


def last_step(marks: Sequence[TokenMark]) -> SelfContinued:
    """The step of these marks, which `passes` has found. Forced tokens behind it do not count."""
    own = [mark for mark in marks if mark.self_continued]
    return SelfContinued(len(own), sum((mark.source is TokenSource.HEAD) + mark.vain for mark in own))


class TokenDetails(NamedTuple):
    """Lists with one entry for each of some tokens; None in place of a list that nobody asked for.

    `sources`    where each came from
    `decisions`  why each was committed
    `logprobs`   its log probability, and those of the likeliest tokens

    An entry is None (`ELSEWHERE` among the sources) where it is not known: a token that the session began with.
    """

    sources: list[TokenMark]
    decisions: list[Decision | None] | None = None
    logprobs: list[TokenLogprobs | None] | None = None

    @classmethod
    def asked_by(cls, spec: TextSpec) -> Self:
        """Details of no token yet, with a list for each detail that the text's options ask for."""
        return cls([], [] if spec.explain else None, None if spec.logprobs is None else [])

    @classmethod
    def of(cls, brought: "HasDetails") -> Self:
        """The details in a response or an event."""
        return cls(brought.sources, brought.decisions, brought.logprobs)

    def add(self, more: "TokenDetails", room: int) -> None:
        """Append the first `room` entries of `more`, which has the same lists."""
        self.sources.extend(more.sources[:room])
        if self.decisions is not None and more.decisions is not None:
            self.decisions.extend(more.decisions[:room])
        if self.logprobs is not None and more.logprobs is not None:
            self.logprobs.extend(more.logprobs[:room])

    def between(self, first: int, end: int) -> "TokenDetails":
        """The entries from index `first` to before `end`. Below index 0 nothing is known."""
        before = [None] * (min(0, end) - min(0, first))
        known = slice(max(0, first), max(0, end))
        return TokenDetails(
            [ELSEWHERE for _ in before] + self.sources[known],
            None if self.decisions is None else [*before, *self.decisions[known]],
            None if self.logprobs is None else [*before, *self.logprobs[known]],
        )

    def named(self) -> dict[str, list[Decision | None] | list[TokenLogprobs | None] | None]:
        """The details that are sent on request only, by name in responses."""
        return {"decisions": self.decisions, "logprobs": self.logprobs}

    def sourced(self, tokens: Sequence[int]) -> list[tuple[int, TokenSource]]:
        """These tokens, each with its source. Raises ValueError if a source is unknown."""
        return list(zip(tokens, [each.source for each in self.sources if each.source is not None], strict=True))

    def last(self, count: int) -> "TokenDetails":
        """The last `count` entries."""
        return self.between(len(self.sources) - count, len(self.sources))


class HasDetails(Protocol):
    """A response, or an event of a stream, with details of tokens."""

    @property
    def sources(self) -> list[TokenMark]: ...
    @property
    def decisions(self) -> list[Decision | None] | None: ...
    @property
    def logprobs(self) -> list[TokenLogprobs | None] | None: ...
