"""What draft tokens have brought so far, in time: in debt, only those that are likelier accepted than not are sent.

Whether a draft pays is an estimate, and the estimates of many draft tokens of little value are wrong by more than they
are worth: of those that seem to pay, too many are those that were taken for better than they are. Nothing in a single
round shows it. So the passes themselves are added up: each token is worth what the target alone takes for it, and a
pass with draft tokens costs its time, with that of the target's wait for the draft. So does the pass behind it, which
may read accepted tokens again. The debt is small at most, so a text is hardly ever slower than the target alone.
"""

from specpair.speculation.policy.timing import LatencyModel, Mean

SURE = 0.5  # chance of acceptance from which a draft token is sent whatever the balance is
# All in passes of the target alone: the debt from which drafts must be sure, the greatest balance and debt, and what is
# forgiven with each token that comes without a draft.
_ALLOWED, _MOST, _FORGIVEN = 0.25, 4.0, 0.005


class DraftBalance:
    """The balance of one text."""

    def __init__(self, latencies: LatencyModel) -> None:
        self._latencies = latencies
        self._plain = Mean(0.95)  # seconds of passes without draft tokens, unless one with draft tokens came before
        self._drafted = False  # whether the last pass had draft tokens
        self.passes = 0.0  # the balance, in passes of the target alone

    @property
    def in_debt(self) -> bool:
        """Whether only draft tokens should be sent that are likelier accepted than not."""
        return self.passes < -_ALLOWED

    def judged(self, tokens: int, seconds: float) -> None:
        """Take in a pass with draft tokens, which brought `tokens` tokens.

        `seconds`: of the pass, and of the target's wait for the draft.
        """
        self._add(tokens - seconds / self._step)
        self._drafted = True

    def plain(self, seconds: float) -> None:
        """Take in a pass of `seconds` without draft tokens."""
        if self._drafted:
            self._add(1.0 - seconds / self._step)
        else:
            self._plain.learn(seconds)
            self._add(_FORGIVEN)
        self._drafted = False

    @property
    def _step(self) -> float:
        return self._plain.value or self._latencies.alone

    def _add(self, passes: float) -> None:
        self.passes = min(max(self.passes + passes, -_MOST), _MOST)
