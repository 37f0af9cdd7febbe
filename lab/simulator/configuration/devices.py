"""The keys of `devices`: kinds of verifiers and drafters, and the cost of their passes."""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from lab.simulator.configuration.keys import (
    MS,
    Count,
    File,
    Keys,
    Mistake,
    Name,
    NonNegative,
    Positive,
    Share,
    repeated,
)
from lab.simulator.costs.catalogue import roofline
from lab.simulator.costs.cost import LinearCost, PassCost
from lab.simulator.costs.roofline import Roofline
from lab.simulator.costs.tables import read_table
from lab.simulator.virtual.agreement import Agreement as Law
from lab.simulator.virtual.agreement import read_profile, shipped_profile, stated
from specpair.engines.load_options import LEAST_BATCH, LoadOptions
from verifier_server.options import MOST_DRAFT_SLOTS, VerifierOptions


class StatedCost(Keys):
    """A cost that is linear in the tokens and sequences of a pass."""

    law: Literal["linear"]
    decode_ms: Positive
    """a pass over one token of one sequence"""
    per_token_ms: NonNegative = 0.0
    """added by each further token, of whichever sequence"""
    per_sequence_ms: NonNegative = 0.0
    """added by each further sequence, beside its tokens"""

    @cached_property
    def built(self) -> PassCost:
        """The cost itself."""
        return LinearCost(self.decode_ms, self.per_token_ms, self.per_sequence_ms)


class TableCost(Keys):
    """A cost from a table of measured passes."""

    law: Literal["table"]
    table_path: File | Annotated[list[File], Field(min_length=1)]
    """what `python -m lab.benchmarks.verify_curve` wrote, as JSON; several files, if they are at different contexts"""

    @model_validator(mode="after")
    def _is_readable(self) -> "TableCost":
        _ = self.built  # raises BadCost, a ValueError, for a file that is no table
        return self

    @cached_property
    def built(self) -> PassCost:
        """The cost itself. Raises BadCost."""
        return read_table(*([self.table_path] if isinstance(self.table_path, Path) else self.table_path))


Cost = Annotated[StatedCost | TableCost, Field(discriminator="law")]


class Costly(Keys):
    """A model on a device, by name or by the cost of a pass."""

    model: str | None = None
    """the model's name in the catalogue"""
    device: str | None = None
    """the name in the catalogue of the device, or of a group of devices that hold the model together"""
    weights: str = "bf16"
    """number type of the model's weights, with `model` and `device`"""
    cache: str = "bf16"
    """number type of the KV cache, with `model` and `device`"""
    catalogue_path: File | None = None
    """models and devices of your own by their sizes, as TOML, beside those of the catalogue"""
    cost: Cost | None = None
    """what a pass takes, in place of `model` and `device`"""

    @model_validator(mode="after")
    def _has_a_cost(self) -> "Costly":
        named = [name for name in ("model", "device") if getattr(self, name) is not None]
        if len(named) != (2 if self.cost is None else 0):
            has = " and ".join([*named, *(["cost"] if self.cost is not None else [])]) or "neither"
            called = getattr(self, "name", "the draft model")
            raise Mistake(f"{called}: has {has}: give model and device, or cost", *named[:1])
        if self.cost is None:
            _ = self.pass_cost  # raises BadCost, a ValueError, for names that are in no catalogue
        return self

    def held_tokens(self) -> int | None:
        """Tokens of KV cache that the device's memory holds beside the weights; None where it is not named."""
        cost = None if self.device is None else self.pass_cost
        return cost.cache_tokens() if isinstance(cost, Roofline) else None

    @cached_property
    def pass_cost(self) -> PassCost:
        """The cost of a pass. Raises BadCost for a file that describes no cost."""
        return self._roofline() if self.cost is None else self.cost.built

    def _roofline(self, layers: int | None = None) -> Roofline:
        assert self.model is not None and self.device is not None, "checked when the file was read"
        own = [] if self.catalogue_path is None else [self.catalogue_path]
        return roofline(self.model, self.device, *own, weights=self.weights, cache=self.cache, layers=layers)


_CONTEXT = 32_768  # tokens of a text, at most, where neither the file nor a device's memory says otherwise


class DeviceKeys(Costly):
    """The keys of equal devices."""

    name: Name
    """tells the kind from the others; connections and prices name it"""
    count: Count = 1
    """how many"""


class StatedAgreement(Keys):
    """How often the draft model chooses the target's token, by position in the draft."""

    law: Literal["stated"]
    by_position: Annotated[list[Share], Field(min_length=1)]
    """of the first draft token, the second, …, each given that those before agreed; the last holds for all further"""

    @cached_property
    def built(self) -> Law:
        """The law itself."""
        return stated(*self.by_position)


class ProfiledAgreement(Keys):
    """An agreement from a recorded run, by kind of text."""

    law: Literal["profile"]
    profile: str | None = None
    """the name of a profile that ships"""
    profile_path: File | None = None
    """a file in the form of the profiles that ship, in place of `profile`"""

    @model_validator(mode="after")
    def _is_readable(self) -> "ProfiledAgreement":
        if (self.profile is None) == (self.profile_path is None):
            raise Mistake("an agreement of the law profile has one of profile and profile_path", "profile")
        _ = self.built  # raises BadProfile, a ValueError
        return self

    @cached_property
    def built(self) -> Law:
        """The law itself. Raises BadProfile for a file that is no profile, and for an unknown name."""
        if self.profile_path is not None:
            return read_profile(Path(self.profile_path))
        assert self.profile is not None, "checked when the file was read"
        return read_profile(shipped_profile(self.profile))


def _agreement(given: object) -> object:
    """A share, shares by position, or the name of a profile, written in full."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = [given]
    if isinstance(given, str):
        return {"law": "profile", "profile": given}
    return {"law": "stated", "by_position": given} if isinstance(given, list) else given


_Laws = Annotated[StatedAgreement | ProfiledAgreement, Field(discriminator="law")]
Agreement = Annotated[_Laws, BeforeValidator(_agreement, json_schema_input_type=Share | list[Share] | str | _Laws)]


class DraftModelKeys(Costly):
    """The draft model of a verifier, which shares its machine."""

    agreement: Agreement
    """how often it chooses the target's token: a share, shares by position, or a profile"""
    slots: Count = MOST_DRAFT_SLOTS
    """texts that it drafts for at once; others wait"""
    shares_device: bool | None = None
    """whether its passes and the target's slow each other down, as on one GPU; null: if both have a `device`"""


class HeadKeys(Keys):
    """The target's own head (MTP), which drafts between passes of the target."""

    depth: Count = 3
    """tokens that it drafts in a row, at most"""
    step_ms: Positive | None = None
    """a step for one text; null: what one layer and the LM head of `model` take on `device`"""
    agreement: Agreement
    """how often it chooses the target's token: a share, shares by position, or a profile"""


class HttpKeys(Keys):
    """The time that requests take of a verifier's processes, each with one core.

    The process of the engine spends a third of it on the way in, a third on its sequence in a pass, and a third on the
    way out; a worker spends half each way. An event of a stream costs as much as a reply.
    """

    workers: Annotated[int, Field(ge=0)] = 0
    """processes that serve HTTP, as of `verifier --workers`; 0: the process of the engine does"""
    request_ms: NonNegative = 0.45
    """a request and its reply, in the only process without workers"""
    engine_ms: NonNegative = 0.15
    """a request and its reply, in the process of the engine beside workers"""
    worker_ms: NonNegative = 0.5
    """a request and its reply, in a worker"""

    @property
    def engine_task(self) -> float:
        """Seconds of a message, or of a sequence of a pass, in the process of the engine."""
        return (self.engine_ms if self.workers else self.request_ms) / 3 * MS

    @property
    def worker_task(self) -> float:
        """Seconds of a message in a worker."""
        return self.worker_ms / 2 * MS


class VerifierKeys(DeviceKeys):
    """Verifiers, each with its target model."""

    slots: Count = 8
    """texts at once, each with its KV cache"""
    weight: Positive = 1.0
    """texts that it can take in relation to others, for routers that weigh"""
    prefill_chunk: Count = 128
    """tokens of prompts in a pass, at most, while other texts are active"""
    batch_tokens: Annotated[int, Field(ge=LEAST_BATCH)] = LoadOptions().batch_tokens
    """tokens of a pass, over all texts, at most"""
    max_queue: Count = VerifierOptions.max_queue
    """requests that may wait; a drafter whose request is sent away comes again after as long as it is told"""
    context: Count | None = None
    """tokens of a text, its prompt included, at most; null: 32,768, or as many as a `device` has memory for"""
    shared_cache: bool = False
    """whether texts share one KV cache, as with vLLM, so that `slots` texts of `context` tokens need not fit at once;
    that it may be full is not simulated"""
    http: HttpKeys = Field(default_factory=HttpKeys)
    """the time that HTTP takes of its processes"""
    draft: DraftModelKeys | None = None
    """its own draft model, for the modes fused and auto"""
    head: HeadKeys | None = None
    """the target's own head, with which it drafts in the mode fused and continues by itself in the mode remote"""

    @model_validator(mode="after")
    def _fits(self) -> "VerifierKeys":
        held = self.held_tokens()
        if held is None:
            return self
        texts, context = 1 if self.shared_cache else self.slots, self.context or 1
        if texts * context > held:
            told = f"{self.name}: beside the weights, {self.device} holds {held:,} tokens of KV cache, and "
            if self.shared_cache:
                raise Mistake(f"{told}context asks for {context:,}: give a smaller context", "context")
            raise Mistake(
                f"{told}slots x context asks for {texts:,} x {context:,}: give a context of at most "
                f"{held // texts:,}, at most {held // context:,} slots, or smaller numbers of cache or weights; or say "
                "shared_cache: true, if texts share one",
                "slots" if self.context is None else "context",
            )
        return self

    @model_validator(mode="after")
    def _head_has_a_cost(self) -> "VerifierKeys":
        if self.head is not None and self.head.step_ms is None and self.model is None:
            raise Mistake(f"{self.name}: give the head's step_ms, as the verifier has no model", "head", "step_ms")
        return self

    @cached_property
    def head_cost(self) -> PassCost | None:
        """The cost of a step of the head; None: there is no head."""
        if self.head is None:
            return None
        if self.head.step_ms is not None:
            return LinearCost(self.head.step_ms, 0.0, 0.0)
        return self._roofline(layers=1)

    @cached_property
    def longest(self) -> int:
        """Tokens of a text, at most."""
        held = self.held_tokens()
        if self.context is not None or held is None:
            return self.context or _CONTEXT
        return min(_CONTEXT, held if self.shared_cache else held // self.slots)

    @property
    def shares_device(self) -> bool:
        """Whether passes of its draft model and of the target slow each other down."""
        draft = self.draft
        named = draft is not None and draft.device is not None and self.device is not None
        return named if draft is None or draft.shares_device is None else draft.shares_device


class DrafterKeys(DeviceKeys):
    """Drafters, each with its draft model and one user at a time."""

    agreement: Agreement
    """how often the draft model chooses the target's token: a share, shares by position, or the name of a profile"""


class Devices(Keys):
    """All machines of the fleet."""

    verifiers: Annotated[list[VerifierKeys], Field(min_length=1)]
    """kinds of verifiers"""
    drafters: list[DrafterKeys] = Field(default_factory=list)
    """kinds of drafters; none is needed in the modes target and fused"""

    @model_validator(mode="after")
    def _names_differ(self) -> "Devices":
        names = [kind.name for kind in (*self.verifiers, *self.drafters)]
        if (again := repeated(names)) is not None:
            beyond = again - len(self.verifiers)
            place = ("verifiers", again) if beyond < 0 else ("drafters", beyond)
            raise Mistake(f"two kinds are called {names[again]!r}", *place)
        return self
