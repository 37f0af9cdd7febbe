"""The keys of `devices`: verifiers and drafters, of kinds."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from lab.simulator.configuration.costs import Costly
from lab.simulator.configuration.keys import (
    AtLeastOne,
    ConstantNumber,
    Count,
    File,
    Keys,
    Mistake,
    Name,
    Number,
    Positive,
    Share,
    repeated,
)
from lab.simulator.virtual.agreement import Agreement as Law
from lab.simulator.virtual.agreement import ByPosition, Stretches, read_profile, shipped_profile
from specpair.engines.load_options import LEAST_BATCH, LoadOptions
from verifier_server.options import MOST_DRAFT_SLOTS, VerifierOptions

_CONTEXT = 32_768  # tokens of a text, at most, where neither the file nor a device's memory says otherwise


class DeviceKeys(Costly):
    """Devices that are alike."""

    name: Name
    """tells the kind from the others; connections and prices name it"""
    count: Count = 1
    """how many"""

    def called(self) -> str:
        return self.name


class StatedAgreement(Keys):
    """How often the draft model chooses the target's token, by position in the draft."""

    law: Literal["stated"]
    by_position: Annotated[list[Share], Field(min_length=1)]
    """of the first draft token, the second, …, each given that those before agreed; the last holds for all further"""

    def built(self) -> Law:
        return ByPosition(self.by_position)


class ProfiledAgreement(Keys):
    """As in a recorded run, by kind of text."""

    law: Literal["profile"]
    profile: str | None = None
    """the name of a profile that ships"""
    profile_path: File | None = None
    """a profile that `python -m lab.benchmarks.agreement_profile` wrote, in place of `profile`"""

    @model_validator(mode="after")
    def _is_readable(self) -> "ProfiledAgreement":
        if (self.profile is None) == (self.profile_path is None):
            raise Mistake("an agreement of the law profile has one of profile and profile_path", "profile")
        self.built()  # raises BadProfile, a ValueError
        return self

    def built(self) -> Law:
        """Raises BadProfile for a file that is none, and for a name that no profile has."""
        if self.profile_path is not None:
            return read_profile(Path(self.profile_path))
        assert self.profile is not None, "checked when the file was read"
        return read_profile(shipped_profile(self.profile))


class StretchedAgreement(Keys):
    """With memory: a text has easy and hard stretches by turns, of lengths that are geometrically distributed."""

    law: Literal["stretches"]
    easy: Share
    """how often the draft model agrees in an easy stretch"""
    hard: Share
    """how often in a hard one"""
    easy_tokens: AtLeastOne
    """mean length of easy stretches"""
    hard_tokens: AtLeastOne
    """mean length of hard ones"""

    def built(self) -> Law:
        return Stretches(self.easy, self.hard, self.easy_tokens, self.hard_tokens)


def _agreement(given: object) -> object:
    """A share, shares by position, or the name of a profile, written in full."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = [given]
    if isinstance(given, str):
        return {"law": "profile", "profile": given}
    return {"law": "stated", "by_position": given} if isinstance(given, list) else given


_Laws = Annotated[StatedAgreement | StretchedAgreement | ProfiledAgreement, Field(discriminator="law")]
Agreement = Annotated[_Laws, BeforeValidator(_agreement, json_schema_input_type=Share | list[Share] | str | _Laws)]


class DraftModelKeys(Costly):
    """The draft model of a verifier, which shares its machine."""

    agreement: Agreement
    """how often it chooses the target's token: a share, shares by position, or a profile"""
    slots: Count = MOST_DRAFT_SLOTS
    """texts that it drafts for at once; others wait"""
    shares_device: bool | None = None
    """whether its passes and the target's slow each other down, as on one GPU; null: if both have a `device`"""


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
    draft: DraftModelKeys | None = None
    """its own draft model, which the mode fused needs"""

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

    def longest(self) -> int:
        """Tokens of a text, at most."""
        held = self.held_tokens()
        if self.context is not None or held is None:
            return self.context or _CONTEXT
        return min(_CONTEXT, held if self.shared_cache else held // self.slots)


class ComesAndGoes(Keys):
    """Devices that are there for a while, then away for a while, as phones are."""

    on_s: Number
    """how long one is there"""
    off_s: Number
    """how long it is away"""
    there_at_first: Share = 1.0
    """the share that is there at the beginning"""

    @model_validator(mode="after")
    def _is_there_at_times(self) -> "ComesAndGoes":
        if isinstance(self.on_s, ConstantNumber) and not self.on_s.value:
            raise Mistake("on_s is 0: the device would never be there", "on_s")
        return self

    def periods(self, rng: random.Random) -> Iterator[tuple[float, float]]:
        """When a device is there: (from, until) in seconds, in ascending order. The period that runs at time 0 begins
        there: it is a whole one."""
        at = 0.0 if rng.random() < self.there_at_first else self.off_s.draw(rng)
        while True:
            until = at + self.on_s.draw(rng)
            if until > at:
                yield at, until
            at = until + self.off_s.draw(rng)


class DrafterKeys(DeviceKeys):
    """Drafters, each with its draft model and one user at a time."""

    agreement: Agreement
    """how often the draft model chooses the target's token: a share, shares by position, or the name of a profile"""
    availability: ComesAndGoes | None = None
    """when a device is there; null: always"""


class Devices(Keys):
    """All machines of the fleet."""

    verifiers: Annotated[list[VerifierKeys], Field(min_length=1)]
    """kinds of verifiers"""
    drafters: list[DrafterKeys] = Field(default_factory=list)
    """kinds of drafters; none is needed in the modes target and fused"""

    @model_validator(mode="after")
    def _names_differ(self) -> "Devices":
        names = self.names()
        if (again := repeated(names)) is not None:
            beyond = again - len(self.verifiers)
            place = ("verifiers", again) if beyond < 0 else ("drafters", beyond)
            raise Mistake(f"two kinds are called {names[again]!r}", *place)
        return self

    def names(self) -> list[str]:
        """Of all kinds."""
        return [kind.name for kind in (*self.verifiers, *self.drafters)]
