"""What may be chosen about one text."""

import secrets
from dataclasses import dataclass, replace
from enum import StrEnum
from types import NoneType
from typing import Any

from drafter_client.errors import BadOption
from speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy
from speculation.sampling import gumbel
from speculation.sampling.sampling import Sampling

_NUMBERS: dict[str, tuple[type, ...]] = {
    "max_tokens": (int,),
    "temperature": (float, int),
    "top_k": (int,),
    "top_p": (float, int),
    "seed": (int, NoneType),
    "threshold": (float, int, NoneType),
    "draft_n": (int, NoneType),
}


class Mode(StrEnum):
    """Who drafts. Under the strategies in `DRAFTER_INVARIANT` the text is the same in each."""

    REMOTE = "remote"  # this machine
    FUSED = "fused"  # the verifier, with a draft model of its own
    TARGET = "target"  # nobody: the target alone
    AUTO = "auto"  # whichever of these is the fastest here, as measured on the way


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a text is to be continued. Raises BadOption for values that make no sense.

    Without drafting here `draft_n`, `lookup` and `lockstep` mean nothing, but that `draft_n` counts in mode fused, too.

    `mode`          who drafts
    `strategy`      rule by which drafts are accepted
    `threshold`     for the strategy of that name: a draft stands that the target gives more
    `explain`       have each token come with the decision on it
    `seed`          the same seed gives the same text; None: drawn, and reported
    `draft_n`       fixed drafts a guess; None: as many as pay
    `lookup`        draft what followed in the text before, too, where that is likelier to stand than the model's draft
    `lockstep`      draft, send, wait: nothing side by side. Some strategies allow nothing else
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    strategy: Strategy = Strategy.COUPLED
    threshold: float | None = None
    explain: bool = False
    mode: Mode = Mode.REMOTE
    draft_n: int | None = None
    lookup: bool = True
    lockstep: bool = False

    def __post_init__(self) -> None:
        for name, types in _NUMBERS.items():
            if type(getattr(self, name)) not in types:  # compared: True is no number here
                raise BadOption(f"{name} is no number that it can be: {getattr(self, name)!r}")
        if self.max_tokens < 1:
            raise BadOption(f"max_tokens must be at least 1, got {self.max_tokens}")
        if self.draft_n is not None and self.draft_n < 0:
            raise BadOption(f"draft_n must be None or at least 0, got {self.draft_n}")
        for name, known in (("strategy", Strategy), ("mode", Mode)):
            try:
                object.__setattr__(self, name, known(getattr(self, name)))  # a plain "target" will do
            except ValueError:
                raise BadOption(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}") from None
        lossy = self.strategy is Strategy.THRESHOLD
        if lossy != (self.threshold is not None):
            raise BadOption("threshold: the strategy threshold needs one, and no other has any")
        if self.threshold is not None and not 0.0 <= self.threshold < 1.0:
            raise BadOption(f"threshold must be at least 0 and below 1, got {self.threshold}")
        try:
            _ = self.sampling
        except ValueError as error:
            raise BadOption(str(error)) from None

    def settled(self) -> "Options":
        """The same with a seed, drawn where none was given."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(gumbel.SEED_LIMIT))

    @property
    def sampling(self) -> Sampling:
        """How tokens are drawn; the seed is 0 until `settled`."""
        return Sampling(self.seed or 0, self.temperature, self.top_k, self.top_p)

    @property
    def in_turns(self) -> bool:
        """Whether draft, send, wait is all that there is."""
        return self.lockstep or self.strategy not in DRAFTER_INVARIANT

    def described(self) -> dict[str, Any]:
        """How tokens are drawn, as the verifier reports it (`speculation.protocol.messages.sampling_body`)."""
        names = ("seed", "temperature", "top_k", "top_p")
        body = {name: getattr(self, name) for name in names} | {"strategy": str(self.strategy), "noise": gumbel.NAME}
        return body if self.threshold is None else body | {"threshold": self.threshold}

    def request(self) -> dict[str, Any]:
        """The fields that both `/prefill` and `/generate` take."""
        names = ("max_tokens", "temperature", "top_k", "top_p", "seed")
        fields: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.strategy is not Strategy.COUPLED:
            fields["strategy"] = str(self.strategy)
        if self.threshold is not None:
            fields["threshold"] = self.threshold
        if self.explain:
            fields["explain"] = True
        return fields
