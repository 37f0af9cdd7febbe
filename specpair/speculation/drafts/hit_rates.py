"""How often predictions are right, by kind: a prior chance at first, and more and more the share that was right.

The kind is mostly the length of the match by which a token was found: the longer the match, the likelier the text goes
on in the same way. How likely differs from text to text, and the prior chances are right for none. So what all
predictions so far have shown moves the priors of all kinds: the right ones over those that were expected to be right
are the factor of the odds. A source that suits the text is trusted after a few tokens, in matches of lengths that have
not come up yet, too, and one that does not is not.
"""

from collections.abc import Sequence

_KEEP = 0.995  # factor by which old counts fade with each prediction
_PRIOR_WEIGHT = 4.0  # predictions of its kind that the prior counts for
_EXPECTED = 4.0  # right predictions that the factor 1 counts for


class HitRates:
    """The shares of right predictions of one source in one text."""

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
