"""The limit of tokens a second: a bucket that fills at a constant rate, and that may be overdrawn."""

BURST = 1.0  # seconds for which the full bucket gives tokens at its rate
_NOTHING = 1e-6  # tokens; less is a rounding error


class TokenBucket:
    """Tokens that may be spent. Times are in seconds.

    What a request costs is known at its end. So a request may begin while nothing is owed, and is charged afterwards,
    perhaps more than the bucket holds. The next request waits until that is paid back, so on average no more than the
    rate is spent.
    """

    def __init__(self, rate: float, now: float) -> None:
        """`rate`: tokens a second."""
        self.rate = rate
        self._level = rate * BURST
        self._at = now

    def change(self, rate: float, now: float) -> None:
        """Fill at another rate from now on."""
        self._fill(now)
        self.rate = rate

    def spend(self, tokens: float, now: float) -> None:
        """Take tokens out."""
        self._fill(now)
        self._level -= tokens

    def wait(self, now: float) -> float:
        """Seconds until a request may begin; 0: one may begin now."""
        self._fill(now)
        return 0.0 if self._level > -_NOTHING else -self._level / self.rate

    def _fill(self, now: float) -> None:
        self._level = min(self.rate * BURST, self._level + self.rate * max(0.0, now - self._at))
        self._at = max(now, self._at)
