"""How many tokens a node generates in an hour, and so what a token costs."""

from dataclasses import dataclass

_HOUR = 3600.0  # seconds


@dataclass
class Pace:
    """Tokens and hours of a node since it was first seen. It counts from there on when the node starts again."""

    tokens: int = 0
    seconds: float = 0.0  # for which the node was ready
    _last: tuple[float, int] | None = None  # when it was looked at, and the tokens since the node's start

    def note(self, now: float, generated: int | None) -> None:
        """Note what the node told at a look. `generated`: tokens since its start; None: it is not ready."""
        if generated is None:
            self._last = None
            return
        if self._last is not None:
            since, before = self._last
            self.seconds += now - since
            self.tokens += generated - before if generated >= before else generated
        self._last = now, generated

    def cost(self, hourly_price: float) -> float:
        """What the time has cost, idle time included."""
        return hourly_price * self.seconds / _HOUR

    def price(self, hourly_price: float) -> float | None:
        """What a million tokens have cost; None: there are no tokens yet."""
        return 1e6 * self.cost(hourly_price) / self.tokens if self.tokens else None

    @property
    def tokens_per_second(self) -> float | None:
        """On average, idle time included; None: it was not looked at twice."""
        return self.tokens / self.seconds if self.seconds else None
