"""A law of agreement: the chance that the drafter's choice is the target's token, all tokens before it being known.

It is stated by position in the draft, or taken from a profile: outcomes of a real run, by kind of text.

A profile's file is JSON: `target`, `draft` and `measured` say in words what ran, and `kinds` has for each kind of text
two lists by position in the draft, `judged` and `accepted`: how many draft tokens there were that all before them had
been accepted, and how many of these were accepted, too.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lab.user_files import first_mistake, text_of
from specpair.command_line.setting_values import advice

ANY = ""  # the kind of a text of which nothing is known
_LEAST = 30  # outcomes that a position of a profile must have; from the first with fewer on, they count together


class BadProfile(ValueError):
    """A file is no profile, or no profile has this name. The message names it and the remedy."""


@dataclass(frozen=True)
class Agreement:
    """A law. `kinds`: for each kind of text, and for `ANY`, the chance of each draft token, those before it accepted;
    the last one holds for all behind it, too."""

    kinds: Mapping[str, Sequence[float]]

    def chance(self, position: int, kind: str = ANY) -> float:
        """The chance, 0 to 1, of draft token `position`; the first is 0. For an unknown kind, the chance over all
        kinds."""
        chances = self.kinds.get(kind) or self.kinds[ANY]
        return chances[min(position, len(chances) - 1)]


def stated(*chances: float) -> Agreement:
    """The same chances by position for all texts. Raises ValueError for no chances, or one outside 0 to 1."""
    if not chances or not all(0.0 <= each <= 1.0 for each in chances):
        raise ValueError(f"a law of agreement is one or more chances from 0 to 1, got {list(chances)}")
    return Agreement({ANY: chances})


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
    """The model of a profile's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    draft: str
    measured: str
    kinds: Annotated[dict[str, Counts], Field(min_length=1)]


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


def read_profile(path: Path) -> Agreement:
    """The law of the profile in a file. Raises BadProfile."""
    try:
        kinds = ProfileFile.model_validate_json(text_of(path, BadProfile)).kinds
    except ValidationError as error:
        raise BadProfile(f"{path} is no profile of agreement: {first_mistake(error)}") from None
    return Agreement({kind: _shares([counts]) for kind, counts in kinds.items()} | {ANY: _shares([*kinds.values()])})


def _shares(kinds: Collection[Counts]) -> list[float]:
    """Share of accepted tokens by position; the last is that of all positions from the first thin one on."""
    judged, accepted = (
        [sum(each) for each in zip_longest(*lists, fillvalue=0)]
        for lists in ([each.judged for each in kinds], [each.accepted for each in kinds])
    )
    full = next((position for position, count in enumerate(judged) if count < _LEAST), len(judged))
    shares = [accepted[position] / judged[position] for position in range(full)]
    return [*shares, sum(accepted[full:]) / sum(judged[full:])] if full < len(judged) else shares
