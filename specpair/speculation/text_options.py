"""`TextSpec`: the options of one text that both ends must know, each defined once."""

from dataclasses import dataclass, replace
from typing import Any, Self

from specpair.options.option import complaint, option, options_of
from specpair.speculation.acceptance.strategies import Strategy, effective_sampling
from specpair.speculation.sampling.distribution import MOST_LOGPROBS
from specpair.speculation.sampling.grammar import wrong_grammars
from specpair.speculation.sampling.sampling import Sampling, SamplingOptions


@dataclass(frozen=True, kw_only=True)
class TextSpec(SamplingOptions):
    """The options of a text. Requests, flags, settings and OpenAI's parameters are made from these fields."""

    max_tokens: int | None = option(
        None,
        "maximum number of tokens to generate",
        usually="as many as the context holds",
        ge=1,
        group="text",
        placeholder="N",
    )
    strategy: Strategy = option(Strategy.COUPLED, "the rule by which draft tokens are accepted", group="acceptance")
    threshold: float | None = option(
        None,
        "with the strategy threshold (lossy): the target probability above which a draft token is accepted",
        ge=0.0,
        lt=1.0,
        group="acceptance",
        placeholder="P",
    )
    explain: bool = option(False, "report the decision on each token")
    logprobs: int | None = option(
        None,
        "report the log probability of each token, and of this many of the most likely tokens: the "
        "target's at temperature 1, before logits processors and filters",
        usually="none",
        ge=0,
        le=MOST_LOGPROBS,
        group="text",
        placeholder="N",
    )
    cache_salt: str = option(
        "",
        "use the KV cache of other texts for this prompt only if their requests had the same salt",
        longest=256,
        group="text",
        placeholder="TEXT",
    )

    @classmethod
    def of(cls, sampling: SamplingOptions, **options: Any) -> Self:
        """A spec with these sampling settings and further options."""
        return cls(**{name: getattr(sampling, name) for name in options_of(SamplingOptions)}, **options)

    @property
    def sampling(self) -> Sampling:
        """How the tokens are drawn; the seed is 0 if none was given."""
        return Sampling.of(self)

    @property
    def drawn(self) -> Sampling:
        """The target's settings under the strategy, which may take the argmax."""
        return effective_sampling(self.strategy, self.sampling)

    @property
    def details_asked(self) -> tuple[bool, int | None]:
        """The requested details of its tokens: the options `explain` and `logprobs`."""
        return self.explain, self.logprobs

    @property
    def without_details(self) -> Self:
        """Its options without `explain`, `logprobs` and the length."""
        return replace(self, explain=False, logprobs=None, max_tokens=None)

    def complaint(self) -> str | None:
        """The error for the options, each and together; None: they are valid."""
        return complaint(self) or wrong_together(self)


def wrong_together(spec: TextSpec) -> str | None:
    """The error for valid options that do not go together; None: they do."""
    if spec.strategy is Strategy.THRESHOLD and spec.threshold is None:
        return "the strategy threshold needs a threshold, from 0 to less than 1"
    if spec.strategy is not Strategy.THRESHOLD and spec.threshold is not None:
        return f"a threshold is not possible with the strategy {spec.strategy}"
    return wrong_grammars(spec)
