"""A law of agreement: the chance that the drafter's choice is the target's token, all tokens before it being known.

It is stated (the same everywhere, or by position in the draft), or taken from a profile: outcomes of a real run, by
kind of text.

A profile's file is JSON: `target`, `draft` and `measured` say in words what ran, and `kinds` has for each kind of text
two lists by position in the draft, `judged` and `accepted`: how many draft tokens there were that all before them had
been accepted, and how many of these were accepted, too.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lab.given_files import first_mistake, text_of
from specpair.command_line.given_values import advice

ANY = ""  # the kind of a text of which nothing is known


class BadProfile(ValueError):
    """A file is no profile, or no profile is called so. The message names it and says what to do."""


OfText = Callable[[int, int], float]
"""The law for one text: the chance, 0 to 1, of draft token `position` (the first is 0) for the output's token `at` (the
first is 0), those before it accepted, by these two."""


class Agreement(Protocol):
    """A law of agreement."""

    def of_text(self, kind: str, rng: random.Random) -> OfText:
        """The law for a text of `kind`; for a text of whichever kind, if it knows nothing of this one.

        `rng`: what is drawn for the text, so that texts of equal streams are alike.
        """


@dataclass(frozen=True)
class ByPosition:
    """The stated law: one chance for each position in the draft; the last one holds for all behind it, too."""

    chances: Sequence[float]

    def __post_init__(self) -> None:
        """Raises ValueError unless there is a chance, and all are from 0 to 1."""
        if not self.chances or not all(0.0 <= each <= 1.0 for each in self.chances):
            raise ValueError(f"a law of agreement is one or more chances from 0 to 1, got {list(self.chances)}")

    def chance(self, position: int) -> float:
        """The chance of draft token `position`."""
        return self.chances[min(position, len(self.chances) - 1)]

    def of_text(self, kind: str, rng: random.Random) -> OfText:
        return lambda position, at: self.chance(position)


def constant(chance: float) -> ByPosition:
    """The law that states the same chance everywhere. Raises ValueError unless it is from 0 to 1."""
    return ByPosition((chance,))


class Counts(BaseModel):
    """Outcomes of one kind of text, by position in the draft."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    judged: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    accepted: list[Annotated[int, Field(ge=0)]]

    @model_validator(mode="after")
    def _fit(self) -> "Counts":
        if len(self.judged) != len(self.accepted):
            raise ValueError(f"{len(self.judged)} positions are judged and {len(self.accepted)} accepted")
        if any(accepted > judged for judged, accepted in zip(self.judged, self.accepted, strict=True)):
            raise ValueError("more draft tokens are accepted than judged")
        return self


class ProfileFile(BaseModel):
    """A profile as its file has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    draft: str
    measured: str
    kinds: Annotated[dict[str, Counts], Field(min_length=1)]


@dataclass(frozen=True)
class Profile:
    """The law of a real run: a law by position for each kind of text, and one for all of them (`ANY`)."""

    kinds: Mapping[str, ByPosition]

    @classmethod
    def of_counts(cls, kinds: Mapping[str, Counts], least: int = 30) -> "Profile":
        """`least`: outcomes that a position must have; from the first with fewer on, they count together.

        Raises ValueError where there are no outcomes.
        """
        if not kinds:
            raise ValueError("a profile needs at least one judged draft token")
        return cls(
            {kind: _law([counts], least) for kind, counts in kinds.items()} | {ANY: _law([*kinds.values()], least)}
        )

    def chance(self, position: int, kind: str = ANY) -> float:
        """That of draft token `position` in texts of a kind that the run had."""
        return self.kinds[kind].chance(position)

    def of_text(self, kind: str, rng: random.Random) -> OfText:
        return self.kinds[kind if kind in self.kinds else ANY].of_text(kind, rng)


def shipped_profiles() -> dict[str, Path]:
    """The profiles that ship, by name."""
    folder = Path(str(files(__package__) / "profiles"))
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def shipped_profile(name: str) -> Path:
    """The file of a profile that ships. Raises BadProfile for another name."""
    known = shipped_profiles()
    if name not in known:
        raise BadProfile(f"no profile {name!r}{advice(name, known)}")
    return known[name]


def read_profile(path: Path) -> Profile:
    """The profile in a file. Raises BadProfile."""
    try:
        return Profile.of_counts(ProfileFile.model_validate_json(text_of(path, BadProfile)).kinds)
    except ValidationError as error:
        raise BadProfile(f"{path} is no profile of agreement: {first_mistake(error)}") from None


def _law(kinds: Collection[Counts], least: int) -> ByPosition:
    """Share of accepted tokens by position; the last is that of all positions from the first thin one on."""
    judged, accepted = (
        [sum(each) for each in zip_longest(*lists, fillvalue=0)]
        for lists in ([each.judged for each in kinds], [each.accepted for each in kinds])
    )
    full = next((position for position, count in enumerate(judged) if count < least), len(judged))
    shares = [accepted[position] / judged[position] for position in range(full)]
    return ByPosition([*shares, sum(accepted[full:]) / sum(judged[full:])] if full < len(judged) else shares)
