"""Proposes draft tokens from the client's prediction of the output.

Often most of an output is known before it is generated: a file that is edited, an answer that is generated anew. The
output is followed through the prediction, token by token. Where the target chooses another token, the output may return
to the prediction at the same place (an insertion), further on (a deletion) or after some tokens of its own (a
replacement). The place is searched after each token: where the last tokens of the output occur in the prediction. The
longest match counts, and of equal ones the nearest to where the output is expected. Near that place one token suffices.

What the target put in place of some tokens is remembered, and proposed where the same tokens come next: a name that is
changed throughout costs one rejection, not one at each place.

The longer output and prediction have agreed, the likelier the next token agrees, too. The chance is measured
(`HitRates`): each committed token is compared with the prediction's, and the outcomes are counted by length of the
agreement.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, Self

from specpair.speculation.drafting.text_lookup import HitRates

_LONGEST = 32  # most tokens of an agreement that count
_AT_START = 4  # tokens of agreement that the beginning of the output counts for
_SURE = 2  # tokens of agreement from which on a place is trusted, and the search begins there
_NEAR = 64  # tokens around the expected place in which a match of one token suffices
_FAR = 4  # tokens of the shortest match that counts in the whole prediction
_TRIED = 6  # nearest occurrences that are compared, on each side of the expected place
_BLIND = 8  # most tokens that the expected place moves on with the output while nothing matches
_MOST_REPLACED = 8  # most tokens of a replacement that is remembered, and most tokens that it replaces
# Prior chance of agreement by bit length of the agreement's length, and last that of a remembered replacement.
_PRIOR = (0.2, 0.45, 0.6, 0.75, 0.85, 0.92, 0.96, 0.6)
_REPLACED = len(_PRIOR) - 1


class _Alignment(NamedTuple):
    """The output's position in the prediction. Indices count the prediction's tokens."""

    next: int  # index of the token that is expected next
    agreed: int  # how many tokens before it are the last ones of the output, `_LONGEST` at most
    left: int  # index of the token at which the output left the last trusted alignment
    away: int  # tokens of the output since then
    instead: tuple[int, ...] = ()  # tokens expected before that at `next`: the rest of a remembered replacement

    @classmethod
    def at(cls, end: int, agreed: int, left: int, away: int) -> Self:
        """An alignment, trusted only if enough tokens before index `end` have agreed."""
        return cls(end, agreed, end, 0) if agreed >= _SURE else cls(end, agreed, left, away)


class PredictedOutput:
    """A prediction, followed by the output. A token takes some microseconds."""

    def __init__(self, tokens: Sequence[int], prompt_len: int) -> None:
        """`tokens`: ids of the prediction.
        `prompt_len`: tokens of the text before the output.
        """
        self._tokens = list(tokens)
        self._prompt_len = prompt_len
        self._output: list[int] = []
        self._alignment = _Alignment(0, _AT_START, 0, 0)
        # The last tail of `predict`, and the alignment behind it.
        self._tail: tuple[list[int], _Alignment] = [], self._alignment
        self._ends: dict[int, list[int]] = {}  # token -> indices behind it
        self._far_ends: dict[tuple[int, ...], list[int]] = {}  # `_FAR` tokens -> indices behind them
        for end, token in enumerate(self._tokens, 1):
            self._ends.setdefault(token, []).append(end)
            if end >= _FAR:
                self._far_ends.setdefault(tuple(self._tokens[end - _FAR : end]), []).append(end)
        self._replacements: dict[int, dict[tuple[int, ...], tuple[int, ...]]] = {}  # by first replaced token
        self._rates = HitRates([(chance,) for chance in _PRIOR])

    def __len__(self) -> int:
        """Tokens of the text, prompt and output, that were taken in."""
        return self._prompt_len + len(self._output)

    def extend(self, tokens: Sequence[int]) -> None:
        """Take in `tokens` that follow in the output, and learn from them."""
        alignment = self._alignment
        for at, token in enumerate(tokens):
            if (expected := self._expected(alignment)) is not None:
                self._rates.learn(expected[1], 0 if expected[0] == token else None)
            before, alignment = alignment, self._moved(alignment, tokens, at)
            self._learn_replacement(before, alignment, tokens, at)
        self._output.extend(tokens)
        self._alignment, self._tail = alignment, ([], alignment)

    def predict(self, tail: Sequence[int] = (), forced: int = 0) -> list[tuple[int, float]]:
        """As `TokenLookup.predict`; empty at the prediction's end."""
        known, alignment = self._tail
        if known != list(tail[: len(known)]):
            known, alignment = [], self._alignment
        for at in range(len(known), len(tail)):
            alignment = self._moved(alignment, tail, at)
        self._tail = list(tail), alignment
        if (expected := self._expected(alignment, forced)) is None:
            return []
        token, kind = expected
        (chance,) = self._rates.chances(kind)
        return [(token, chance)]

    def _expected(self, alignment: _Alignment, forced: int = 0) -> tuple[int, int] | None:
        """The token that follows `alignment`, and its kind in `HitRates`; None: there is none."""
        if alignment.instead:
            return alignment.instead[0], _REPLACED
        if alignment.next >= len(self._tokens):
            return None
        if (replacement := self._replacement(alignment)) is not None:
            return replacement[1][0], _REPLACED
        return self._tokens[alignment.next], max(0, alignment.agreed - forced).bit_length()

    def _replacement(self, alignment: _Alignment) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The tokens at a trusted alignment that were replaced before, and their replacement; None: none were."""
        if alignment.agreed < _SURE or alignment.next >= len(self._tokens):
            return None
        here, known = alignment.next, self._replacements.get(self._tokens[alignment.next], {})
        return next((each for each in known.items() if (*self._tokens[here : here + len(each[0])],) == each[0]), None)

    def _learn_replacement(self, before: _Alignment, alignment: _Alignment, tokens: Sequence[int], at: int) -> None:
        """Take in what `tokens[at]`, which led from `before` to `alignment`, showed: that a replacement has ended, or
        that the target kept tokens which it had replaced."""
        if not (before.away or before.instead):
            kept = self._tokens[before.next : before.next + 1] == [tokens[at]]
            if kept and (stale := self._replacement(before)) is not None:
                del self._replacements[tokens[at]][stale[0]]
            return
        if alignment.away or not before.away or alignment.instead:
            return
        since, replaced = before.away + 1, alignment.next - alignment.agreed - before.left
        new = since - alignment.agreed
        if not (0 <= replaced <= _MOST_REPLACED and 0 < new <= _MOST_REPLACED):
            return
        recent = [*self._output[-2 * _LONGEST :], *tokens[max(0, at + 1 - 2 * _LONGEST) : at + 1]]
        instead = tuple(recent[-since:][:new])
        # An insertion is known by the two tokens that it stands before.
        key = tuple(self._tokens[before.left : before.left + (replaced or 2)])
        if not replaced:
            instead = (*instead, *key)
        known = self._replacements.setdefault(key[0], {})
        known.pop(key, None)
        self._replacements[key[0]] = {key: instead, **known}  # the latest first

    def _moved(self, alignment: _Alignment, tokens: Sequence[int], at: int) -> _Alignment:
        """The alignment behind `tokens[at]`, which follows `alignment`. `tokens`: what follows the output."""
        token, (here, agreed, left, away, instead) = tokens[at], alignment
        if instead and instead[0] == token:
            return self._within(alignment, instead[1:])
        if not instead and self._tokens[here : here + 1] == [token]:
            return _Alignment.at(here + 1, min(agreed + 1, _LONGEST), left, away + 1)
        if instead or agreed < _SURE:
            return self._searched(alignment, tokens, at, left, away + 1)
        if (known := self._replacement(alignment)) is not None and known[1][0] == token:
            return self._within(_Alignment(here + len(known[0]), agreed, here, 0), known[1][1:])
        return self._searched(alignment, tokens, at, here, 1)

    def _within(self, alignment: _Alignment, rest: tuple[int, ...]) -> _Alignment:
        """The alignment behind one more token of a replacement, of which `rest` is left."""
        if rest:
            return alignment._replace(away=alignment.away + 1, instead=rest)
        return _Alignment(alignment.next, alignment.agreed, alignment.next, 0)

    def _searched(self, alignment: _Alignment, tokens: Sequence[int], at: int, left: int, away: int) -> _Alignment:
        """The alignment behind `tokens[at]`, which does not follow `alignment`: the output left the prediction."""
        recent = [*self._output[-_LONGEST:], *tokens[max(0, at + 1 - _LONGEST) : at + 1]][-_LONGEST:]
        expected = min(left + min(away, _BLIND), len(self._tokens))
        if 0 < alignment.agreed < _SURE:  # one that was not trusted is the best guess all the same
            expected = alignment.next
        found = self._found(recent, left, expected)
        if found is None:
            return _Alignment(expected, 0, left, away)
        agreed, end = found
        return _Alignment.at(end, agreed, left, away)

    def _found(self, recent: Sequence[int], left: int, expected: int) -> tuple[int, int] | None:
        """(length, end) of the best match of the last tokens of `recent` in the prediction; None: there is none."""
        near = [end for end in _nearest(self._ends.get(recent[-1], ()), expected) if -_NEAR <= end - left <= _NEAR]
        far = _nearest(self._far_ends.get(tuple(recent[-_FAR:]), ()), expected)
        matches = ((self._match(end, recent), -abs(end - expected), end) for end in {*near, *far})
        length, _, end = max(matches, default=(0, 0, 0))
        return (length, end) if length else None

    def _match(self, end: int, recent: Sequence[int]) -> int:
        """The number of tokens before index `end` that match the last tokens of `recent`."""
        most, length = min(len(recent), end), 0
        while length < most and self._tokens[end - length - 1] == recent[-length - 1]:
            length += 1
        return length


def _nearest(ends: Sequence[int], expected: int) -> Sequence[int]:
    """Those of `ends`, which ascend, that are nearest to `expected`: `_TRIED` on each side."""
    middle = bisect_left(ends, expected)
    return ends[max(0, middle - _TRIED) : middle + _TRIED]
