"""The token source of each committed token, as far as the drafter can tell.

A committed token may be reported by the event stream, by the response to the verify request whose pass committed it, or
by the response to another verify request, in any order. So its first source is provisional. The final source comes from
the response of the pass that committed the token (each pass has exactly one), or from the event stream, which reports
self-continuation.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from speculation.acceptance.strategies import common_prefix
from speculation.policy.verifier_timeline import InFlightDraft


class TokenSource(Enum):
    """Every generated token has exactly one of these sources."""

    ACCEPTED = "accepted"  # a draft token that was accepted
    RECOVERED = "recovered"  # the target's token in place of a rejected draft token
    BONUS = "bonus"  # the target's token after a fully accepted draft, or without a draft
    TARGET_DECODED = "target_decoded"  # decoded by self-continuation before a draft for its position arrived


class SourceChange(NamedTuple):
    """The final source of a token, where it differs from the provisional one. `position` counts the prompt, too."""

    position: int
    provisional: TokenSource
    source: TokenSource


def first_sources(count: int) -> list[TokenSource]:
    """The sources of the `count` tokens in a prefill response.

    The first is the prefill's own token. The others, in the response to a repeated request, came by self-continuation.
    """
    return [TokenSource.BONUS] + [TokenSource.TARGET_DECODED] * (count - 1)


class TokenSources:
    """Determines the sources of one text's tokens from its drafts in flight. Positions count the prompt, too."""

    def __init__(self, text: Sequence[int], in_flight: Sequence[InFlightDraft], accepts: bool = True) -> None:
        """`text`: the committed text, prompt included; it grows. `in_flight`: the drafts in flight, as they are at each
        call. `accepts`: whether draft tokens can be accepted."""
        self._text, self._in_flight, self._accepts = text, in_flight, accepts
        self._provisional: dict[int, TokenSource] = {}  # by position: reported to the caller and not final
        self._final: dict[int, TokenSource] = {}  # by position: final, but the token is not in the text yet

    def answered(
        self, draft: InFlightDraft, recorded: int, accepted: int, end: int, unjudged: int = 0
    ) -> list[SourceChange]:
        """Record the response to a draft, which is no longer in flight. Returns the changed sources.

        The draft's verifier pass committed the tokens at positions `recorded` to `end` - 1 (none if these are equal),
        the first `accepted` of which are draft tokens. It left out the last `unjudged` tokens of the draft.
        """
        rejected = recorded + accepted < draft.end - unjudged
        last = TokenSource.RECOVERED if rejected else TokenSource.BONUS
        sources = {at: TokenSource.ACCEPTED if at < recorded + accepted else last for at in range(recorded, end)}
        return self._finalize(sources)

    def target_decoded(self, position: int, count: int) -> list[SourceChange]:
        """Record that self-continuation decoded `count` tokens from `position` on. Returns the changed sources."""
        return self._finalize(dict.fromkeys(range(position, position + count), TokenSource.TARGET_DECODED))

    def provisional(self, position: int, count: int) -> list[TokenSource]:
        """The sources known by now of the last `count` tokens of the text, which begin at `position`."""
        reaches = [(draft, self._reach(draft)) for draft in self._in_flight]
        return [self._provisional_at(at, reaches) for at in range(position, position + count)]

    @property
    def awaits_responses(self) -> bool:
        """Whether a response that is still to come will decide a provisional source."""
        reaches = [(draft.position, self._reach(draft)) for draft in self._in_flight]
        return any(first <= at <= last for at in self._provisional for first, last in reaches)

    def close(self) -> list[SourceChange]:
        """At the end of the text, count the tokens of unknown final source as target-decoded. Returns the changed
        sources."""
        return self._finalize(dict.fromkeys(self._provisional, TokenSource.TARGET_DECODED))

    def _finalize(self, sources: dict[int, TokenSource]) -> list[SourceChange]:
        known = len(self._text)
        self._final |= {at: source for at, source in sources.items() if at >= known}
        changes = [
            SourceChange(at, self._provisional.pop(at), source)
            for at, source in sources.items()
            if at in self._provisional
        ]
        return [change for change in changes if change.provisional is not change.source]

    def _provisional_at(self, at: int, reaches: list[tuple[InFlightDraft, int]]) -> TokenSource:
        if at in self._final:
            return self._final.pop(at)
        source = next(
            (self._of(at, *each) for each in reaches if each[0].position <= at <= each[1]), TokenSource.TARGET_DECODED
        )
        self._provisional[at] = source
        return source

    def _of(self, at: int, draft: InFlightDraft, reach: int) -> TokenSource:
        """The source of a token if the pass over this draft committed it."""
        if at < reach and self._accepts:
            return TokenSource.ACCEPTED
        return TokenSource.RECOVERED if at < draft.end else TokenSource.BONUS

    def _reach(self, draft: InFlightDraft) -> int:
        """The last position that the pass over this draft can have committed a token for."""
        return draft.position + common_prefix(self._text[draft.position : draft.end], draft.drafts)
