"""The options of one text: its length, how it is sampled, and how it is drafted."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from types import NoneType
from typing import Any

from drafter_client.errors import BadOption
from speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy
from speculation.protocol.response_fields import SamplingReport
from speculation.sampling import gumbel
from speculation.sampling.logprobs import MOST_LOGPROBS
from speculation.sampling.sampling import Sampling

PROCESSORS = ("min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "min_tokens")  # off unless given
# Options that results and traces of earlier versions do not have.
_LATER = (*PROCESSORS, "logit_bias", "logprobs", "prediction", "stop", "cache_salt")
_NUMBERS: dict[str, tuple[type, ...]] = {  # the options that are numbers, with the types that each takes
    "max_tokens": (int,),
    "temperature": (float, int),
    "top_k": (int,),
    "top_p": (float, int),
    **dict.fromkeys(PROCESSORS, (float, int)),
    "min_tokens": (int,),
    "logprobs": (int, NoneType),
    "seed": (int, NoneType),
    "threshold": (float, int, NoneType),
    "draft_n": (int, NoneType),
}


class Mode(StrEnum):
    """Which machine drafts. Under the strategies in `DRAFTER_INVARIANT` the text is the same in every mode."""

    REMOTE = "remote"  # this machine
    FUSED = "fused"  # the verifier, with a draft model of its own
    TARGET = "target"  # none: the target decodes alone
    AUTO = "auto"  # the one of the fastest of these modes, as measured during generation


DEFAULT_MODE = Mode.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to continue a text. Raises BadOption for invalid values.

    `draft_n`, `lookup` and `lockstep` apply to drafting on this machine; `draft_n` also applies to mode `fused`, and so
    does `prediction`, which needs no draft model there.

    `max_tokens`    maximum number of tokens to generate, at least 1
    `temperature`   sampling temperature, 0 to 100; 0: greedy
    `top_k`         sample from this many of the likeliest tokens; 0: from all
    `top_p`         sample from the likeliest tokens that together have this probability; 1: from all
    `min_p`         mask tokens of less than this share of the greatest probability, 0 to 1; 0: none
    `presence_penalty`    subtracted from the logits of tokens that the text has, prompt excluded; -2 to 2, 0: off
    `frequency_penalty`   as `presence_penalty`, for each time that the text has the token
    `repetition_penalty`  divides positive logits, and multiplies negative ones, of tokens in prompt or text; 0.01 to
                    100, 1: off
    `min_tokens`    the model ends no text before it has so many tokens; a stop string does. 0: whenever it wants
    `logit_bias`    for token ids, what is added to their logits, -100 to 100
    `mode`          which machine drafts; `auto` keeps to one mode where `one_mode` says so
    `strategy`      the rule that decides which draft tokens are accepted
    `threshold`     for the strategy `threshold`: a draft token is accepted if the target's probability of it is greater
    `explain`       attach to each token the decision why it was committed
    `logprobs`      attach to each token its log probability, and those of this many of the likeliest tokens, 0 to 20;
                    None: none. They are the target's at temperature 1, before processors and filters
    `seed`          0 to 2^53 - 1: the same seed gives the same text; None: a random seed, which is reported
    `draft_n`       fixed number of draft tokens in each verify request; None: as many as pay off
    `lookup`        also draft by prompt lookup, where that is likelier to be accepted than the model's draft
    `prediction`    what the text is expected to be, as text or token ids: draft tokens are taken from it, too, where it
                    is likelier to be right than the other drafts. It may differ from the text at any place
    `stop`          strings: the text ends before the first of them. The name of a control token ends it, too
    `cache_salt`    the KV cache of other texts is used for this prompt only if they had the same salt
    `lockstep`      draft, send, wait: no drafting during a verify request. Some strategies work in lockstep only
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    seed: int | None = None
    strategy: Strategy = Strategy.COUPLED
    threshold: float | None = None
    explain: bool = False
    logprobs: int | None = None
    mode: Mode = DEFAULT_MODE
    draft_n: int | None = None
    lookup: bool = True
    prediction: str | Sequence[int] | None = None
    stop: str | Sequence[str] = ()
    cache_salt: str = ""
    lockstep: bool = False

    def __post_init__(self) -> None:
        for name, types in _NUMBERS.items():
            value = getattr(self, name)
            if type(value) not in types:  # isinstance would take True for a number
                allowed = " or ".join("None" if each is NoneType else each.__name__ for each in types)
                raise BadOption(f"{name} must be of type {allowed}, got {value!r}")
        self._check_bias()
        self._check_stop()
        if self.max_tokens < 1:
            raise BadOption(f"max_tokens must be at least 1, got {self.max_tokens}")
        if self.logprobs is not None and not 0 <= self.logprobs <= MOST_LOGPROBS:
            raise BadOption(f"logprobs must be None or 0 to {MOST_LOGPROBS}, got {self.logprobs}")
        if self.draft_n is not None and self.draft_n < 0:
            raise BadOption(f"draft_n must be None or at least 0, got {self.draft_n}")
        for name, known in (("strategy", Strategy), ("mode", Mode)):
            try:
                object.__setattr__(self, name, known(getattr(self, name)))  # accepts a plain string such as "target"
            except ValueError:
                raise BadOption(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}") from None
        lossy = self.strategy is Strategy.THRESHOLD
        if lossy != (self.threshold is not None):
            need = "needs a threshold" if lossy else "takes no threshold: set it to None"
            raise BadOption(f"the strategy {self.strategy} {need}, got {self.threshold}")
        if self.threshold is not None and not 0.0 <= self.threshold < 1.0:
            raise BadOption(f"threshold must be at least 0 and below 1, got {self.threshold}")
        if self.prediction is not None:
            self._check_prediction(self.prediction)
        try:
            _ = self.sampling
        except ValueError as error:
            raise BadOption(str(error)) from None

    def _check_prediction(self, prediction: str | Sequence[int]) -> None:
        if not isinstance(prediction, str):
            if not isinstance(prediction, Sequence) or any(type(token) is not int for token in prediction):
                raise BadOption(f"prediction must be text or token ids, got {type(prediction).__name__}")
            object.__setattr__(self, "prediction", tuple(prediction))  # so that nobody changes it
        if self.mode is Mode.TARGET:
            raise BadOption("prediction: in mode target nothing is drafted; the mode fused needs no draft model for it")
        if self.strategy is Strategy.GREEDY:
            raise BadOption(
                f"prediction: the strategy {self.strategy} accepts no draft tokens, leave one of the two out"
            )

    def _check_stop(self) -> None:
        """Make `stop` a tuple. Raises BadOption unless it holds strings that a text can have."""
        stops = (self.stop,) if isinstance(self.stop, str) else self.stop
        if not isinstance(stops, Sequence) or any(type(stop) is not str for stop in stops):
            raise BadOption(f"stop must be strings, got {self.stop!r}")
        if not all(stops):
            raise BadOption("stop holds an empty string: give each at least one character")
        object.__setattr__(self, "stop", tuple(stops))

    def _check_bias(self) -> None:
        """Raise BadOption unless `logit_bias` maps ids to numbers."""
        if not isinstance(self.logit_bias, Mapping):
            raise BadOption(f"logit_bias must map token ids to numbers, got {self.logit_bias!r}")
        for token, bias in self.logit_bias.items():
            if type(token) is not int or type(bias) not in (float, int):
                raise BadOption(f"logit_bias must map token ids to numbers, got {token!r}: {bias!r}")

    def settled(self) -> "Options":
        """Return these options with a seed: the given one, else a random one."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(gumbel.SEED_LIMIT))

    @property
    def sampling(self) -> Sampling:
        """The sampling settings of the text; their seed is 0 if none was given (see `settled`)."""
        return Sampling.named_as_in(self, self.seed or 0, self.logit_bias)

    @property
    def one_mode(self) -> str | None:
        """Why mode `auto` generates this text in one mode, which is the first of the pair's; None: it may choose.

        That is because of the option named: it says how drafts are made and used, so a mode without them, or with
        others, is not what it asks for. Under strategies for which the text depends on the drafts, the same seed would
        give different texts.
        """
        if self.strategy not in DRAFTER_INVARIANT:
            return f"the strategy {self.strategy}"
        if self.lockstep:
            return "lockstep"
        return None if self.draft_n is None else "a fixed draft length"

    def settled_mode(self, modes: Sequence[Mode]) -> Mode:
        """The mode of this text: the one in its options, or what `auto` is settled to before the text.

        `modes`: those that the pair and its verifier offer, without `auto`, drafting on this machine first if it can.
        """
        settles = self.mode is Mode.AUTO and modes and (len(modes) == 1 or self.one_mode is not None)
        return modes[0] if settles else self.mode

    def in_mode(self, mode: Mode) -> "Options":
        """These options in another mode; without a prediction where nothing drafts."""
        return replace(self, mode=mode, prediction=None if mode is Mode.TARGET else self.prediction)

    def cold(self) -> "Options":
        """These options with a salt of their own: for a text that is measured, and must not find what another one has
        read of its prompt."""
        return replace(self, cache_salt=secrets.token_hex(16))

    @property
    def lockstep_only(self) -> bool:
        """Whether this text is generated in lockstep, as requested or as the strategy requires."""
        return self.lockstep or self.strategy not in DRAFTER_INVARIANT

    def described(self) -> dict[str, Any]:
        """Return the sampling settings as the verifier reports them."""
        return SamplingReport.of(self.sampling, self.strategy, self.threshold).settings()

    def settings(self) -> dict[str, Any]:
        """Return all options as JSON values; those in `_LATER` only where they differ from their default."""
        values = asdict(self)
        for name in _LATER:
            if values[name] == getattr(_PLAIN, name):
                del values[name]
        return values | self._bias()

    def _bias(self) -> dict[str, Any]:
        """`logit_bias` as a field of a JSON object; empty if there is none."""
        biases = {str(token): float(bias) for token, bias in sorted(self.logit_bias.items())}
        return {"logit_bias": biases} if biases else {}

    def request(self) -> dict[str, Any]:
        """Return the fields by which these options go into requests to `/prefill` and `/generate`."""
        names = ("max_tokens", "temperature", "top_k", "top_p", "seed")
        fields: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.strategy is not Strategy.COUPLED:
            fields["strategy"] = str(self.strategy)
        if self.threshold is not None:
            fields["threshold"] = self.threshold
        if self.explain:
            fields["explain"] = True
        if self.cache_salt:
            fields["cache_salt"] = self.cache_salt
        if self.logprobs is not None:
            fields["logprobs"] = self.logprobs
        for name in PROCESSORS:
            if (value := getattr(self, name)) != getattr(_PLAIN, name):
                fields[name] = value
        return fields | self._bias()


_PLAIN = Options()
