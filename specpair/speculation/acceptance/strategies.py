"""The acceptance strategies: the rule by which a draft token is accepted, and the guarantee for the text."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from specpair.speculation.sampling.sampling import Sampling


class Strategy(StrEnum):
    """Rule by which a draft token is accepted. A rejected one is replaced by a recovered token from the target."""

    # Accepted iff it equals the token that the target draws with the shared noise (the argmax at temperature 0). Exact:
    # the output is a sample of the target, and the same one for any drafts. Daliri, Musco, Suresh, arXiv 2408.07978.
    COUPLED = "coupled"
    # Accepted iff it equals the target's argmax, at any temperature. Exact for temperature 0, which it amounts to.
    DETERMINISTIC = "deterministic"
    # Never accepted: the target's argmax, one token a request. Exact like `deterministic`; for debugging.
    GREEDY = "greedy"
    # Accepted with probability min(1, p / q), else a token of the residual. Exact: the output is a sample of the
    # target, another one for other drafts. Leviathan, Kalman, Matias, arXiv 2211.17192; Chen et al., arXiv 2302.01318.
    PROBABILISTIC = "probabilistic"
    # Accepted if the target's probability of it exceeds a threshold, or the target draws it with the shared noise.
    # Lossy: the output is biased towards the drafter. Compare typical acceptance in Medusa, arXiv 2401.10774.
    THRESHOLD = "threshold"

    @property
    def draws(self) -> bool:
        """Whether draft tokens are drawn from distributions that the request carries. Each drawn token must be sent."""
        return self is Strategy.PROBABILISTIC

    @property
    def takes_trees(self) -> bool:
        """Whether drafts may be trees. A threshold would accept several tokens that follow the same one, so that their
        order would decide."""
        return self is not Strategy.THRESHOLD

    @property
    def extends(self) -> bool:
        """Whether a draft token that equals a committed token counts as accepted, so that the rest is judged.

        With the others it would not (greedy), or not for certain (a coin, a lossy threshold). Then a draft that begins
        before the end of the text is late or repeated, and the rest of it must not extend the text.
        """
        return self in (Strategy.COUPLED, Strategy.DETERMINISTIC)


# The text is the same for any drafts (the term is from arXiv 2408.07978). With the other strategies it depends on which
# tokens were drafted. So with several drafts in flight, or with self-continuation, it would depend on timing.
DRAFTER_INVARIANT = frozenset({Strategy.COUPLED, Strategy.DETERMINISTIC, Strategy.GREEDY})


def effective_sampling(strategy: Strategy, sampling: Sampling) -> Sampling:
    """The target's sampling settings under `strategy`: those of the session, or greedy where it takes the argmax."""
    argmax = strategy in (Strategy.DETERMINISTIC, Strategy.GREEDY)
    return replace(sampling, temperature=0.0) if argmax else sampling


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Number of tokens in the longest common prefix."""
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return at
    return min(len(left), len(right))
