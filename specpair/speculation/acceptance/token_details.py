"""What is told of committed tokens besides their ids: where each came from, why, and how likely it was."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self, TypeVar

from specpair.speculation.acceptance.explain import Decision
from specpair.speculation.acceptance.token_source import ELSEWHERE, TokenMark, TokenSource
from specpair.speculation.sampling.logprobs import TokenLogprobs
from specpair.speculation.text_options import TextSpec

T = TypeVar("T")


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
        """Those of no token yet, with a list for whatever the text's options ask for."""
        return cls([], [] if spec.explain else None, None if spec.logprobs is None else [])

    @classmethod
    def of(cls, brought: "HasDetails") -> Self:
        """Those that a response or an event brought."""
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
        return TokenDetails(
            self.sources[first:end]
            if 0 <= first <= end
            else [each or ELSEWHERE for each in _between(self.sources, first, end)],
            None if self.decisions is None else _between(self.decisions, first, end),
            None if self.logprobs is None else _between(self.logprobs, first, end),
        )

    def named(self) -> dict[str, list[Decision | None] | list[TokenLogprobs | None] | None]:
        """What is told only where it is asked for, by its name in responses."""
        return {"decisions": self.decisions, "logprobs": self.logprobs}

    def sourced(self, tokens: Sequence[int]) -> list[tuple[int, TokenSource]]:
        """These tokens, each with where it came from. Raises ValueError where that is not known."""
        return list(zip(tokens, [each.source for each in self.sources if each.source is not None], strict=True))

    def last(self, count: int) -> "TokenDetails":
        """The last `count` entries."""
        return self.between(len(self.sources) - count, len(self.sources))


class HasDetails(Protocol):
    """A response, or an event of a stream, that tells of tokens."""

    @property
    def sources(self) -> list[TokenMark]: ...

    @property
    def decisions(self) -> list[Decision | None] | None: ...

    @property
    def logprobs(self) -> list[TokenLogprobs | None] | None: ...


def _between(kept: Sequence[T | None], first: int, end: int) -> list[T | None]:
    return [*[None] * (min(0, end) - min(0, first)), *kept[max(0, first) : max(0, end)]]
