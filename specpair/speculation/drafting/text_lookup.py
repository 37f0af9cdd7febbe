"""Predicts the next token by looking up where the last tokens occurred earlier in the text.

If they occurred earlier, what followed them is drafted. This is prompt lookup decoding, which several authors published
independently (Saxena 2023; Yang et al., "Inference with reference", arXiv 2304.04487). It needs no model, and works
where a text repeats its prompt or itself: editing, summarising, code.

The longest match counts. It is found by a suffix automaton of the text (Blumer et al. 1985), which has a state for each
set of places that some words of the text end at, and which grows with each token in constant time on average. A state
knows what followed its places, the latest first.

The chance is measured (`HitRates`): every token that is added is predicted before, those of the prompt too, and the
outcomes are counted by length of match, for each choice.
"""

from collections.abc import Sequence

_KEEP = 0.995  # factor by which old counts fade with each prediction
_PRIOR_WEIGHT = 4.0  # predictions of its kind that the prior counts for
_EXPECTED = 4.0  # right predictions that the factor 1 counts for


class HitRates:
    """The shares of right predictions of one source in one text: a prior chance at first, by kind of prediction.

    The kind is mostly the length of the match by which a token was found. How likely such a match is right differs
    from text to text. So all predictions so far move the priors of all kinds: the right ones over those that were
    expected to be right are the factor of the odds.
    """

    def __init__(self, priors: Sequence[Sequence[float]]) -> None:
        """`priors`: for each kind of prediction the chances, between 0 and 1, that its first choice is right, and each
        choice after it."""
        self._priors = priors
        self._right = [[0.0] * len(chances) for chances in priors]  # these three fade
        self._tried = [0.0] * len(priors)
        self._all_right = self._all_expected = _EXPECTED

    def chances(self, kind: int) -> list[float]:
        """For each choice of such a prediction, the chance that it is right."""
        factor, tried = self._all_right / self._all_expected, self._tried[kind] + _PRIOR_WEIGHT
        return [
            (right + _PRIOR_WEIGHT * factor * prior / (1.0 - prior + factor * prior)) / tried
            for right, prior in zip(self._right[kind], self._priors[kind], strict=True)
        ]

    def learn(self, kind: int, right: int | None) -> None:
        """Take in the outcome of a prediction. `right`: which of its choices was right, from 0 on; None: none was."""
        self._tried[kind] = _KEEP * self._tried[kind] + 1.0
        counts = self._right[kind] = [_KEEP * count for count in self._right[kind]]
        self._all_right = _KEEP * self._all_right + (right == 0)
        self._all_expected = _KEEP * self._all_expected + self._priors[kind][0]
        if right is not None:
            counts[right] += 1.0


def kind_of(length: int, kinds: int) -> int:
    """The kind of a match of `length` tokens, one or more, among `kinds`: twice as long, the next kind."""
    return min(length.bit_length(), kinds) - 1


_CHOICES = 3  # different tokens that are predicted at a place, at most
_FRESH = 8  # longest words before a new token whose states learn that it was the latest there
_TRIED = 2000  # latest added tokens that are predicted before they are added, which is enough of a long prompt
# Prior chance of a right prediction of the first choice, by bit length of the match's length; and of the others.
_PRIOR = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8)
_PRIOR_OTHERS = 0.05
_START = 0  # the state of the empty word


class TextLookup:
    """The text so far, with an index of its words. Adding a token takes some microseconds."""

    def __init__(self) -> None:
        self._count = 0
        # Of each state: the length of its longest word, the state of the longest shorter word with more places, and the
        # state behind each token that followed, the latest last.
        self._lengths, self._links = [0], [-1]
        self._next: list[dict[int, int]] = [{}]
        self._whole = _START  # the state of the whole text
        self._rates = HitRates([(first, *[_PRIOR_OTHERS] * (_CHOICES - 1)) for first in _PRIOR])
        self._tail: tuple[list[int], int, int] = [], _START, 0  # the last tail, and the state and length of its match

    def __len__(self) -> int:
        return self._count

    def extend(self, tokens: Sequence[int]) -> None:
        """Add `tokens` to the text."""
        for left, token in zip(range(len(tokens), 0, -1), tokens, strict=True):
            if left <= _TRIED and self._count:
                self._learn(token)
            self._add(token)
        state = max(self._links[self._whole], _START)
        self._tail = [], state, self._lengths[state]

    def predict(self, tail: Sequence[int] = (), forced: int = 0, most: int = 1) -> list[tuple[int, float]]:
        """The `most` likeliest tokens behind the text and `tail`, each with its chance; empty: nothing matches.

        `forced`: of the last tokens, those that could not be others: that they match says nothing.
        """
        state, length = self._behind(tail)
        found = self._found(state, min(most, _CHOICES))
        if not found or not length:
            return []
        chances = self._rates.chances(kind_of(max(1, length - forced), len(_PRIOR)))
        return list(zip(found, chances, strict=False))

    def _behind(self, tail: Sequence[int]) -> tuple[int, int]:
        """The state and length of the longest word that ends the text and `tail` and has a successor."""
        known, state, length = self._tail
        if known != list(tail[: len(known)]):
            state = max(self._links[self._whole], _START)
            known, length = [], self._lengths[state]
        for token in tail[len(known) :]:
            while token not in self._next[state] and state != _START:
                state = self._links[state]
                length = self._lengths[state]
            if token in self._next[state]:
                state, length = self._next[state][token], length + 1
            if not self._next[state] and state != _START:  # the end of the text
                state = self._links[state]
                length = self._lengths[state]
        self._tail = list(tail), state, length
        return state, length

    def _found(self, state: int, most: int) -> list[int]:
        """The tokens that followed the words of `state`, the latest first, then those that followed shorter words."""
        found: dict[int, None] = {}
        while state > _START and len(found) < most:
            for token in reversed(self._next[state]):
                found[token] = None
            state = self._links[state]
        return list(found)[:most]

    def _learn(self, token: int) -> None:
        state = self._links[self._whole]
        if state <= _START:
            return
        found = self._found(state, _CHOICES)
        right = found.index(token) if token in found else None
        self._rates.learn(kind_of(self._lengths[state], len(_PRIOR)), right)

    def _add(self, token: int) -> None:
        follow, lengths, links = self._next, self._lengths, self._links
        state, new = self._whole, len(lengths)
        self._count += 1
        lengths.append(self._count)
        follow.append({})
        links.append(_START)
        while state >= 0 and token not in follow[state]:
            follow[state][token] = new
            state = links[state]
        if state >= 0:
            behind = follow[state][token]
            if lengths[behind] == lengths[state] + 1:
                links[new] = behind
            else:  # only the shorter words of that state end here, too: they get one of their own
                copy = len(lengths)
                lengths.append(lengths[state] + 1)
                follow.append(follow[behind].copy())
                links.append(links[behind])
                links[behind] = links[new] = copy
                at = state
                while at >= 0 and follow[at].get(token) == behind:
                    follow[at][token] = copy
                    at = links[at]
            for _ in range(_FRESH):
                if state <= _START:
                    break
                follow[state][token] = follow[state].pop(token)
                state = links[state]
        self._whole = new
