"""What a forward pass takes by the tokens in it, as learnt from the passes that were run."""

from collections.abc import Sequence

from speculation.policy.estimates import Line

_SPIKE = 3.0  # times the time expected: a pass beyond that met something else (another process, a compilation)


class StepTime:
    """A line through the passes seen, older ones fading; level until they differ in width. Seconds; 0.0 at first."""

    def __init__(self, pass_ms: Sequence[float] = ()) -> None:
        """`pass_ms[n]`: milliseconds of a pass over n + 1 tokens, tried out beforehand."""
        self._line = Line(0.98, 0.0)
        for tokens, milliseconds in enumerate(pass_ms, 1):
            self.learn(tokens, milliseconds / 1e3)

    def at(self, tokens: int) -> float:
        """The estimate for a pass over `tokens`."""
        return self._line.at(tokens)

    def learn(self, tokens: int, seconds: float) -> None:
        """Take in one pass."""
        known = self.at(tokens)
        self._line.learn(tokens, min(seconds, _SPIKE * known) if known else seconds)
