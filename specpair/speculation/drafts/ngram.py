"""Predict the next token by n-gram lookup.

If the last tokens occurred earlier in the text, what followed them is drafted. This is prompt lookup decoding, which
several authors published independently (Saxena 2023; Yang et al., "Inference with reference", arXiv 2304.04487). It
needs no model, and works where a text repeats its prompt or itself: editing, summarising, code.

The longer the match, the likelier the text continues in the same way. The chance is measured: the index predicts every
token that is added to it, those of the prompt too, and counts how often it was right, by length of match.
"""

from collections.abc import Sequence

from specpair.speculation.drafts.tree import Proposal

_SIZES = (4, 3, 2, 1)  # lengths of the indexed n-grams, the longest first
_LONGEST = 32  # most tokens of a match that count
_OCCURRENCES = 4  # latest occurrences of an n-gram that are compared
_TRIED = 2000  # latest added tokens that are predicted before they are added, which is enough of a long prompt
_KEEP = 0.995  # factor by which old counts fade with each prediction
_PRIOR = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8)  # prior chance of a right prediction, by bit length of the match's length
_PRIOR_WEIGHT = 4.0  # predictions that the prior counts for


class NgramIndex:
    """The text so far, and where its n-grams occur in it. Adding a token takes some microseconds."""

    def __init__(self) -> None:
        self._text: list[int] = []
        self._positions: dict[tuple[int, ...], list[int]] = {}  # n-gram -> positions of the token behind it
        self._right = [_PRIOR_WEIGHT * chance for chance in _PRIOR]
        self._tried = [_PRIOR_WEIGHT] * len(_PRIOR)

    def __len__(self) -> int:
        return len(self._text)

    def extend(self, tokens: Sequence[int]) -> None:
        """Add `tokens` to the text."""
        for left, token in zip(range(len(tokens), 0, -1), tokens, strict=True):
            if left <= _TRIED:
                self._learn(token)
            self._text.append(token)
            end = len(self._text)
            for size in _SIZES:
                if size <= end:
                    self._positions.setdefault(tuple(self._text[-size:]), []).append(end)

    def predict(self, tail: Sequence[int] = (), forced: int = 0) -> Proposal | None:
        """The likeliest token behind the text and `tail`, its chance as confidence, and a runner-up; None: no match.

        `forced`: of the last tokens, those that could not be others: that they match says nothing.
        """
        found = self._found(tail, choices=2)
        if not found:
            return None
        length, token = found[0]
        level = self._level(max(1, length - forced))
        second = next((other for _, other in found if other != token), None)
        return Proposal(token, self._right[level] / self._tried[level], second)

    def _found(self, tail: Sequence[int], choices: int) -> list[tuple[int, int]]:
        """(length of the match, token behind it) of the latest matches, the longest first, then the latest.

        Shorter n-grams are searched until `choices` different tokens are found.
        """
        whole = len(self._text) + len(tail)
        recent = [*self._text[-_LONGEST:], *tail][-_LONGEST:]
        found: list[tuple[int, int]] = []
        for size in _SIZES:
            if size > whole or len({token for _, token in found}) >= choices:
                continue
            positions = self._positions.get(tuple(recent[-size:]), ())
            latest = [position for position in positions[-_OCCURRENCES - 1 :] if position < whole][::-1][:_OCCURRENCES]
            matches = [(self._match(position, recent, size), self._at(position, tail)) for position in latest]
            found += sorted(matches, key=lambda match: -match[0])  # a stable sort: of equal lengths, the latest first
        return found

    def _at(self, position: int, tail: Sequence[int]) -> int:
        held = len(self._text)
        return self._text[position] if position < held else tail[position - held]

    def _match(self, position: int, recent: Sequence[int], length: int) -> int:
        """Length of the match between the tokens before `position` and the end of `recent`; at least `length`."""
        most = min(len(recent), position)
        while length < most and self._text[position - length - 1] == recent[-length - 1]:
            length += 1
        return length

    def _learn(self, token: int) -> None:
        found = self._found((), choices=1)
        if found:
            level = self._level(found[0][0])
            self._right[level] = _KEEP * self._right[level] + (found[0][1] == token)
            self._tried[level] = _KEEP * self._tried[level] + 1.0

    def _level(self, length: int) -> int:
        return min(length.bit_length(), len(_PRIOR)) - 1
